import numpy as np
import pytest

from geomix.errors import FormatError
from pointcloud.io import ReadOptions, WriteOptions, read_cloud, write_cloud
from tests.pointcloud.making import cloud_of, scatter

ROWS = np.array([[1.5, 2, 3, 10, 20, 30], [4, 5, 6.25, 40, 50, 60], [7, 8, 9, 70, 80, 255]])


def lines(separator, header=None, rows=ROWS, end="\n"):
    body = [separator.join(f"{value:g}" for value in row) for row in rows]
    return "".join(line + end for line in ([header] if header else []) + body)


@pytest.mark.parametrize("separator", [" ", "  ", "\t", ",", ";", ", "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_columns_are_split_at_what_parts_them(tmp_path, separator, end):
    path = tmp_path / "a.xyz"
    path.write_bytes(lines(separator, end=end).encode())
    cloud = read_cloud(path)
    assert np.array_equal(cloud.coord, ROWS[:, :3])
    assert cloud.fields["color"] == pytest.approx(ROWS[:, 3:] / 255)


@pytest.mark.parametrize(
    ("header", "separator"),
    [
        ("x y z red green blue", " "),
        ("//X Y Z R G B", " "),
        ("# x y z r g b", " "),
        ("X,Y,Z,Red,Green,Blue", ","),
        ('"x";"y";"z";"red";"green";"blue"', ";"),
    ],
)
def test_a_line_of_names_says_what_the_columns_are(tmp_path, header, separator):
    (tmp_path / "a.txt").write_text(lines(separator, header))
    cloud = read_cloud(tmp_path / "a.txt")
    assert np.array_equal(cloud.coord, ROWS[:, :3])
    assert set(cloud.fields) == {"color"}


def test_names_in_another_order(tmp_path):
    (tmp_path / "a.csv").write_text("Classification,Z,Y,X,GpsTime\n2,3,2,1,0.5\n6,6,5,4,0.75\n")
    cloud = read_cloud(tmp_path / "a.csv")
    assert cloud.coord.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert cloud.fields["classification"].tolist() == [2, 6]
    assert cloud.fields["gps_time"].tolist() == [0.5, 0.75]


def test_comments_empty_lines_and_a_count_are_no_points(tmp_path):
    (tmp_path / "a.pts").write_text("3\n# made by hand\n\n" + lines(" ") + "\n")
    assert np.array_equal(read_cloud(tmp_path / "a.pts").coord, ROWS[:, :3])


def test_a_file_that_is_written_again_keeps_its_lines(tmp_path):
    text = "# a comment\n\n" + lines("  ", rows=ROWS)
    (tmp_path / "a.txt").write_text(text)
    cloud = read_cloud(tmp_path / "a.txt")
    write_cloud(cloud, tmp_path / "same.txt")
    assert (tmp_path / "same.txt").read_text() == text
    write_cloud(
        cloud.with_fields(classification=np.array([2, 6, 5]), confidence=np.array([0.5, 0.25, 1])),
        tmp_path / "b.txt",
        WriteOptions(extra=("confidence",)),
    )
    old, new = text.splitlines(), (tmp_path / "b.txt").read_text().splitlines()
    assert new[:2] == old[:2]
    assert new[2:] == [
        f"{line} {tail}" for line, tail in zip(old[2:], ["2 0.5", "6 0.25", "5 1"], strict=True)
    ]


def test_a_class_that_is_there_is_replaced_in_its_place(tmp_path):
    for separator in (" ", ","):
        text = (
            separator.join(["x", "y", "label", "z"])
            + "\n"
            + lines(separator, rows=[[1, 2, 9, 3], [4, 5, 9, 6]])
        )
        (tmp_path / "a.csv").write_text(text)
        cloud = read_cloud(tmp_path / "a.csv").with_fields(classification=np.array([2, 64]))
        write_cloud(cloud, tmp_path / "b.xyz", overwrite=True)
        expected = text.replace(f"{separator}9{separator}", f"{separator}2{separator}", 1)
        expected = expected.replace(f"{separator}9{separator}", f"{separator}64{separator}", 1)
        assert (tmp_path / "b.xyz").read_text() == expected


def test_a_csv_is_a_table_with_every_field(tmp_path):
    cloud = cloud_of(20, origin=(500_000.123, 5_400_000.0, 0.0))
    write_cloud(cloud, tmp_path / "a.csv")
    again = read_cloud(tmp_path / "a.csv")
    assert np.array_equal(again.coord, cloud.coord)
    assert np.array_equal(again.fields["classification"], cloud.fields["classification"])
    assert np.array_equal(again.fields["intensity"], cloud.fields["intensity"])
    assert np.abs(again.fields["color"] - cloud.fields["color"]).max() <= 0.5 / 255 + 1e-6


def test_a_txt_from_another_format_is_one_id_a_line(tmp_path):
    cloud = cloud_of(20)
    write_cloud(cloud, tmp_path / "scene0000_00.txt")
    written = (tmp_path / "scene0000_00.txt").read_text().splitlines()
    assert written == [str(i) for i in cloud.fields["classification"]]


def test_nan_points_stay(tmp_path):
    (tmp_path / "a.xyz").write_text("1 2 3\nnan nan nan\n4 5 6\n")
    cloud = read_cloud(tmp_path / "a.xyz")
    assert cloud.measured().tolist() == [True, False, True]
    write_cloud(cloud.with_fields(classification=np.array([2, 0, 6])), tmp_path / "b.xyz")
    assert (tmp_path / "b.xyz").read_text() == "1 2 3 2\nnan nan nan 0\n4 5 6 6\n"


def test_one_point_and_none(tmp_path):
    (tmp_path / "a.xyz").write_text("1 2 3\n")
    assert read_cloud(tmp_path / "a.xyz").coord.tolist() == [[1, 2, 3]]
    (tmp_path / "a.csv").write_text("x,y,z\n")
    cloud = read_cloud(tmp_path / "a.csv", ReadOptions(format="text"))
    assert len(cloud) == 0
    write_cloud(cloud.with_fields(classification=np.zeros(0, int)), tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() == "x,y,z,classification\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3\n4 5\n6 7 8\n", r"a\.xyz:2: is no row of 3 numbers: '4 5'"),
        ("1 2 3\n4 five 6\n", r"a\.xyz:2: is no row of 3 numbers"),
        ("1 2\n3 4\n", "2 columns without names"),
        ("1 2 3 4 5\n6 7 8 9 10\n", "5 columns without names"),
        ("a,b,c,1\n1,2,3,4\n", "has no x, y and z"),
    ],
)
def test_what_is_no_table_of_points_is_named_with_its_line(tmp_path, text, message):
    (tmp_path / "a.xyz").write_text(text)
    with pytest.raises(FormatError, match=message):
        read_cloud(tmp_path / "a.xyz")


def test_a_million_lines_are_read_by_the_library(tmp_path):
    np.savetxt(tmp_path / "a.xyz", scatter(20_000), fmt="%.3f")
    assert len(read_cloud(tmp_path / "a.xyz")) == 20_000
