import numpy as np
import pytest

from geomix.errors import FormatError, InputError, MissingFileError
from geomix.learn.classes import VOID, classes_in, read_classes


def written(tmp_path, text, name="map.csv"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / name


def test_whole_numbers_keep_themselves_as_ids_and_words_are_numbered_by_the_alphabet():
    found = classes_in([3.0, 10, None, 3, float("nan")])
    assert [(one.id, one.name) for one in found.classes] == [(3, "3"), (10, "10")]
    found = classes_in(["wheat", "maize", "wheat", "", None])
    assert [(one.id, one.name) for one in found.classes] == [(1, "maize"), (2, "wheat")]
    assert found.number(["wheat", None, "maize"])[0].tolist() == [1, VOID, 0]


def test_colours_of_neighbouring_ids_differ():
    colors = {one.color for one in classes_in(range(30)).classes}
    assert len(colors) == 30


def test_no_labels_or_too_many_are_refused():
    with pytest.raises(InputError, match="all empty"):
        classes_in([None, ""])
    with pytest.raises(InputError, match="300 different labels"):
        classes_in(map(str, range(1000, 1300)))


def test_a_table_joins_labels_names_classes_and_leaves_out(tmp_path):
    file = written(
        tmp_path,
        "from,to,name,color\n3301*,1,cereals,#ffee00\n3301060000,2,maize,\n3399000000,,,\nhay,1,,\n",
    )
    found = read_classes(file)
    assert [(one.id, one.name) for one in found.classes] == [(1, "cereals"), (2, "maize")]
    assert found.classes[0].color == "#ffee00"
    numbers, unknown = found.number([3301010101, 3301060000.0, 3399000000, "hay", "stones", None])
    assert numbers.tolist() == [0, 1, VOID, 0, VOID, VOID]
    assert dict(unknown) == {"stones": 1}


def test_a_table_without_ids_numbers_its_names(tmp_path):
    found = read_classes(written(tmp_path, "from;name\nA;wheat\nB;maize\nC;\n"))
    assert [(one.id, one.name) for one in found.classes] == [(1, "maize"), (2, "wheat")]
    assert found.number(["A", "C"])[0].tolist() == [1, VOID]


def test_a_style_of_qgis_names_and_colours_the_classes(tmp_path):
    text = '<qgis><paletteEntry value="4" label="oats" color="#00FF00"/></qgis>'
    found = read_classes(written(tmp_path, text, "style.qml"))
    assert [(one.id, one.name, one.color) for one in found.classes] == [(4, "oats", "#00ff00")]
    assert found.number([4, "oats"])[0].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("old,new\n1,2\n", "needs the columns from"),
        ("from,to,colour\n1,2,#000000\n", "did you mean 'color'"),
        ("from,to\n1,x\n", "line 2: to must be a whole number, the id in the map, got 'x'"),
        ("from,to\n1,2\n1,3\n", "line 3: label '1' stands twice"),
        ("from,to,name\n1,2,a\n2,2,b\n", "class 2 has two names"),
        ("from,to,color\n1,2,green\n", "not #rrggbb"),
        ("from,to\n", "names no class"),
        ("from,to\n,2\n", "line 2: the column from is empty"),
    ],
)
def test_a_wrong_table_is_refused_with_its_place(tmp_path, text, match):
    with pytest.raises(FormatError, match=match):
        read_classes(written(tmp_path, text))


def test_a_table_that_is_absent_damaged_or_in_another_code_is_refused(tmp_path):
    with pytest.raises(MissingFileError):
        read_classes(tmp_path / "map.csv")
    with pytest.raises(FormatError, match="damaged"):
        read_classes(written(tmp_path, "<qgis>", "style.qml"))
    (tmp_path / "map.csv").write_bytes(np.arange(200, 250, dtype=np.uint8).tobytes())
    with pytest.raises(FormatError, match="UTF-8"):
        read_classes(tmp_path / "map.csv")
