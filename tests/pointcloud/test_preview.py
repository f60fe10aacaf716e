import numpy as np
import pytest
from PIL import Image

from geomix.errors import InputError, OutputExistsError
from pointcloud.cloud import Cloud
from pointcloud.io.preview import legend_of, write_preview
from tests.pointcloud.making import CLASSES, scatter

RED, GREEN = (210, 65, 60), (30, 110, 40)  # building, high vegetation


def two_halves(count=4000):
    """Buildings in the west, trees in the east, a row of trees along the north."""
    coord = scatter(count, size=(20, 10, 1))
    classes = np.where(coord[:, 0] < 10, 6, 5)
    classes[coord[:, 1] > 8] = 5
    return Cloud.from_arrays(coord, classification=classes.astype(np.uint8))


def picture(path):
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def nearest(color):
    return min((RED, GREEN), key=lambda one: np.abs(np.array(one) - color).sum())


def test_west_is_left_and_north_is_up(tmp_path):
    write_preview(two_halves(), tmp_path / "a.png", CLASSES)
    image = picture(tmp_path / "a.png")[24:, 24:]
    height = np.flatnonzero((image[:, 5] != 255).any(axis=1))[-1]
    width = np.flatnonzero(
        (image[100] != 255).any(axis=1) & (np.arange(image.shape[1]) < image.shape[1] - 320)
    )[-1]
    assert nearest(np.median(image[height // 2 : height - 60, : width // 3], axis=(0, 1))) == RED
    assert (
        nearest(np.median(image[height // 2 : height - 60, -width // 3 + width : width], axis=(0, 1)))
        == GREEN
    )
    assert nearest(np.median(image[5:60, : width // 3], axis=(0, 1))) == GREEN


def test_the_highest_point_is_seen(tmp_path):
    ground = scatter(5000, size=(10, 10, 0.1))
    roof = scatter(5000, size=(10, 10, 0.1), origin=(0, 0, 8))
    classes = np.repeat([5, 6], 5000)
    for order in (slice(None), slice(None, None, -1)):
        cloud = Cloud.from_arrays(np.concatenate([ground, roof])[order], classification=classes[order])
        write_preview(cloud, tmp_path / "a.png", CLASSES, overwrite=True)
        assert nearest(np.median(picture(tmp_path / "a.png")[100:500, 100:500], axis=(0, 1))) == RED


def test_the_legend_counts_names_and_colours():
    cloud = two_halves(100)
    classes = cloud.fields["classification"].copy()
    classes[:3], classes[3] = 0, 99
    entries = legend_of(cloud.with_fields(classification=classes), CLASSES)
    named = {entry.id: (entry.name, entry.rgb, entry.points) for entry in entries}
    assert named[0] == ("unlabelled", (128, 128, 128), 3)
    assert named[99][0] == "class 99"
    assert named[6][:2] == ("building", RED)
    assert sum(entry.points for entry in entries) == 100
    assert [e.points for e in entries] == sorted((e.points for e in entries), reverse=True)


def test_strangers_get_colours_of_their_own():
    cloud = Cloud.from_arrays(np.zeros((20, 3)), classification=np.arange(1, 21))
    assert len({entry.rgb for entry in legend_of(cloud, None)}) == 20


def test_points_that_were_not_measured_are_not_drawn(tmp_path):
    cloud = two_halves(2000)
    coord = cloud.coord.copy()
    coord[cloud.fields["classification"] == 6] = np.nan
    write_preview(Cloud(coord, cloud.fields), tmp_path / "a.png", CLASSES)
    image = picture(tmp_path / "a.png")[30:300, 30:300]
    assert (np.abs(image - np.array(RED)).sum(axis=-1) > 90).all()


@pytest.mark.parametrize(
    "coord",
    [
        np.zeros((0, 3)),
        np.zeros((1, 3)),
        np.full((4, 3), np.nan),
        np.array([[0.0, 0, 0], [5, 0, 0]]),
        np.array([[0.0, 0, 0], [0, 0, 9]]),
        np.full((3, 3), 7.0),
        np.array([[0.0, 0, 0], [1e7, 1e7, 0]]),
    ],
    ids=["none", "one", "nan", "a line", "upright", "a heap", "far apart"],
)
def test_odd_clouds_have_a_picture_too(tmp_path, coord):
    cloud = Cloud.from_arrays(coord, classification=np.full(len(coord), 6))
    write_preview(cloud, tmp_path / "a.png", CLASSES)
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "PNG"
        assert max(image.size) < 2000


def test_one_far_point_does_not_shrink_the_scene(tmp_path):
    cloud = two_halves(5000)
    coord = cloud.coord.copy()
    coord[0] = [1e5, 1e5, 0]
    write_preview(Cloud(coord, cloud.fields), tmp_path / "a.png", CLASSES)
    image = picture(tmp_path / "a.png")[30:200, 30:200]
    assert (image.std(axis=-1) > 20).mean() > 0.9  # colour everywhere


def test_a_cloud_without_classes_has_no_picture(tmp_path):
    with pytest.raises(InputError, match="segment it first"):
        write_preview(Cloud.from_arrays(scatter(5)), tmp_path / "a.png")


def test_what_is_there_is_not_overwritten_unasked(tmp_path):
    (tmp_path / "a.png").write_text("mine")
    with pytest.raises(OutputExistsError):
        write_preview(two_halves(10), tmp_path / "a.png")
