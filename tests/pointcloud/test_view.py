import sys
from types import SimpleNamespace

import numpy as np
import pytest

from geomix.errors import InputError, MissingPackageError
from pointcloud.cloud import Cloud
from pointcloud.io.view import colors_of, view
from tests.pointcloud.making import CLASSES, cloud_of


class FakeOpen3d(SimpleNamespace):
    """Takes what the viewer is given."""

    def __init__(self):
        self.shown = []
        super().__init__(
            geometry=SimpleNamespace(PointCloud=SimpleNamespace),
            utility=SimpleNamespace(Vector3dVector=np.asarray),
            visualization=SimpleNamespace(
                draw_geometries=lambda things, window_name: self.shown.extend(things)
            ),
        )


@pytest.fixture
def open3d(monkeypatch):
    fake = FakeOpen3d()
    monkeypatch.setitem(sys.modules, "open3d", fake)
    return fake


def test_the_window_gets_measured_points_around_the_origin(open3d):
    cloud = cloud_of(40, origin=(500_000, 5_400_000, 0))
    coord = cloud.coord.copy()
    coord[3] = np.nan
    view(Cloud(coord, cloud.fields), CLASSES)
    (shown,) = open3d.shown
    assert shown.points.shape == shown.colors.shape == (39, 3)
    assert np.abs(shown.points.mean(axis=0)).max() < 1e-6
    assert shown.colors.min() >= 0
    assert shown.colors.max() <= 1


def test_colours_by_what_is_there():
    cloud = cloud_of(40)
    assert np.array_equal(colors_of(cloud), colors_of(cloud, None, "class"))
    bare = Cloud(cloud.coord, {"color": cloud.fields["color"]})
    assert np.array_equal(colors_of(bare), cloud.fields["color"].astype(float))
    assert len(np.unique(colors_of(Cloud(cloud.coord)), axis=0)) > 20


def test_classes_have_the_colours_of_the_card():
    cloud = Cloud.from_arrays(np.zeros((2, 3)), classification=[6, 2])
    assert (colors_of(cloud, CLASSES, "class") * 255).round().astype(int).tolist() == [
        [210, 65, 60],
        [176, 138, 90],
    ]


def test_what_cannot_be_shown_is_said(open3d):
    with pytest.raises(InputError, match="no points to show"):
        view(Cloud.from_arrays([]))
    with pytest.raises(InputError, match="has no colours"):
        view(Cloud.from_arrays(np.ones((3, 3))), color="rgb")
    with pytest.raises(InputError, match="'pink' is unknown"):
        view(cloud_of(3), color="pink")
    assert open3d.shown == []


def test_without_the_package_the_way_out_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "open3d", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'geomix\[view\]'.*--preview"):
        view(cloud_of(3))
