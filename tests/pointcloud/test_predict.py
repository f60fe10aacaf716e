import logging

import numpy as np
import plyfile
import pytest
import torch

from geomix.checkpoint import ClassInfo
from geomix.errors import (
    CheckpointError,
    GeomixError,
    InputError,
    MemoryBudgetError,
    MissingFileError,
    NonFiniteError,
    OutputExistsError,
    UnsupportedError,
)
from pointcloud import segment
from pointcloud.cloud import Cloud
from pointcloud.io import WriteOptions, check_output, read_cloud, write_cloud
from pointcloud.predict import segment_file
from pointcloud.predict.names import outputs_for
from tests.pointcloud.making import (
    CLASSES,
    Layers,
    cloud_of,
    layers_of,
    make_las,
    scatter,
    tiny_model,
    tiny_model_file,
)


def test_every_point_gets_the_class_of_its_voxel():
    cloud = cloud_of(700)
    found = segment(cloud, Layers())
    assert np.array_equal(found.fields["classification"], layers_of(cloud))
    assert np.array_equal(found.coord, cloud.coord)


def test_other_fields_and_the_file_stay():
    cloud = cloud_of()
    found = segment(cloud, Layers())
    assert set(found.fields) == set(cloud.fields) | {"confidence", "entropy"}
    for name in ("intensity", "color"):
        assert found.fields[name] is cloud.fields[name]
    assert found.source is cloud.source


def test_confidence_and_entropy_by_hand():
    found = segment(cloud_of(20), Layers())
    p = np.exp([4, 0, 0, 0, 0]) / np.exp([4, 0, 0, 0, 0]).sum()
    assert found.fields["confidence"] == pytest.approx(np.full(20, p[0]), rel=1e-5)
    assert found.fields["entropy"] == pytest.approx(np.full(20, -(p * np.log(p)).sum()), rel=1e-5)


def test_a_file_and_a_model_may_be_given_by_name(tmp_path):
    path = make_las(tmp_path / "a.las")
    file = tiny_model_file(tmp_path / "m.safetensors")
    by_name = segment(path, file, device="cpu")
    by_hand = segment(read_cloud(path), tiny_model())
    assert np.array_equal(by_name.fields["classification"], by_hand.fields["classification"])


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_tiny_clouds(count):
    found = segment(cloud_of(count), tiny_model())
    assert found.fields["classification"].shape == (count,)
    assert np.isfinite(found.fields["confidence"]).all()


def test_points_without_a_measurement_get_their_code_and_the_rest_a_class(caplog):
    cloud = cloud_of(100)
    coord = cloud.coord.copy()
    coord[::7] = np.nan
    holed = Cloud(coord, cloud.fields)
    found = segment(holed, Layers())
    bad = np.isnan(coord).any(axis=1)
    assert (found.fields["classification"][bad] == 0).all()
    assert (found.fields["confidence"][bad] == 0).all()
    kept = Cloud(coord[~bad])
    assert np.array_equal(found.fields["classification"][~bad], layers_of(kept))
    assert f"{bad.sum()} of 100 points are no measurement and get the id 0" in caplog.text


def test_nothing_measured_at_all():
    found = segment(Cloud.from_arrays(np.full((5, 3), np.nan)), tiny_model())
    assert found.fields["classification"].tolist() == [0] * 5


@pytest.mark.parametrize(
    ("ids", "code"), [((2, 3, 4), 0), ((0, 1, 2), 255), ((0, 255, 3), 65535)], ids=["free", "zero", "both"]
)
def test_the_code_is_never_a_class(ids, code):
    classes = tuple(ClassInfo(id=i, name=str(i), color="#000000") for i in ids)
    coord = np.array([[0.0, 0, 0], [1, 1, 1], [np.nan, 0, 0]])
    assert segment(Cloud.from_arrays(coord), Layers(classes)).fields["classification"][2] == code
    assert segment(Cloud.from_arrays(coord), Layers(classes), unlabelled=77).fields["classification"][2] == 77


def test_the_estimate_is_said_before_the_run_and_the_budget_reaches_the_model(caplog):
    caplog.set_level(logging.INFO)
    model = Layers()
    segment(cloud_of(50), model, memory="3MB")
    assert model.seen_memory == [3_000_000]
    assert "50 points in" in caplog.text
    assert "may use 3 MB" in caplog.text
    segment(cloud_of(50), model, memory=1000)
    assert "so it works in slices" in caplog.text
    segment(cloud_of(50), model)
    assert model.seen_memory[2] > 1_000_000


def test_a_budget_that_is_too_small_says_what_to_do():
    with pytest.raises(MemoryBudgetError, match=r"cloud: .*--memory"):
        segment(cloud_of(500), tiny_model(), memory=1000)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no"),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
    ids=["python", "cuda", "cpu"],
)
def test_memory_that_runs_out_is_one_clear_line(error):
    class Hungry(Layers):
        def forward(self, *args, **kwargs):
            raise error

    with pytest.raises(MemoryBudgetError, match="give --memory below what is free"):
        segment(cloud_of(5), Hungry())


def test_a_fault_of_the_model_is_not_hidden():
    class Broken(Layers):
        def forward(self, *args, **kwargs):
            raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        segment(cloud_of(5), Broken())


def test_nan_from_the_model_stops():
    class Sick(Layers):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs) * torch.nan

    with pytest.raises(NonFiniteError, match="returns NaN for"):
        segment(cloud_of(5), Sick())


def test_a_model_without_classes_or_card_is_refused():
    with pytest.raises(CheckpointError, match="names no classes"):
        model = Layers()
        object.__setattr__(model, "card", model.card.model_copy(update={"classes": None}))
        segment(cloud_of(5), model)
    with pytest.raises(CheckpointError, match="no card"):
        segment(cloud_of(5), torch.nn.Linear(1, 1))


def test_what_the_model_needs_and_the_cloud_lacks_is_said():
    model = Layers(inputs={"voxel": 0.5, "features": ["offset", "nir"]})
    with pytest.raises(InputError, match="needs nir; the cloud has classification, color, intensity"):
        segment(cloud_of(5), model)


def test_degrees_are_refused_unless_projected(caplog):
    metres = scatter(200, size=(100, 100, 20))
    degrees = np.stack([5 + metres[:, 0] / 78_850, 45 + metres[:, 1] / 111_130, metres[:, 2]], axis=1)
    cloud = Cloud(degrees, unit="degree")
    with pytest.raises(InputError, match="allow --project"):
        segment(cloud, Layers())
    found = segment(cloud, Layers(), project=True)
    assert np.array_equal(found.coord, degrees)
    assert np.array_equal(found.fields["classification"], layers_of(Cloud(metres)))
    assert "predicted in metres around longitude 5.0" in caplog.text


def test_a_projection_keeps_distances():
    from pointcloud.predict.clouds import _metric

    metres = scatter(50, size=(1000, 1000, 20))
    degrees = np.stack([5 + metres[:, 0] / 78_846.8, 45 + metres[:, 1] / 111_132.0, metres[:, 2]], axis=1)
    local = _metric(Cloud(degrees, unit="degree"), project=True).coord
    true = np.linalg.norm(np.diff(metres, axis=0), axis=1)
    assert np.linalg.norm(np.diff(local, axis=0), axis=1) == pytest.approx(true, rel=1e-3)


def test_a_cloud_within_two_voxels_is_questioned(caplog):
    segment(cloud_of(150, size=(0.3, 0.3, 0.3)), Layers())
    assert "are the coordinates in metres?" in caplog.text


def test_a_density_outside_the_limits_of_the_model_is_said(caplog):
    model = Layers(limits={"density": [5, 50]})
    segment(cloud_of(1000), model)
    assert "points a square metre" not in caplog.text
    segment(cloud_of(200, size=(100, 100, 5)), model)
    assert "made for 5 to 50" in caplog.text


def test_views_are_averaged():
    cloud = cloud_of(60)
    once, often = segment(cloud, tiny_model()), segment(cloud, tiny_model(), augmented=True)
    assert often.fields["confidence"].shape == (60,)
    assert not np.array_equal(once.fields["confidence"], often.fields["confidence"])
    same = segment(cloud, Layers(), augmented=True)
    assert np.array_equal(same.fields["classification"], layers_of(cloud))


def test_a_file_becomes_the_same_file_with_classes(tmp_path):
    source = make_las(tmp_path / "a.laz", version="1.2", point_format=3)
    out = tmp_path / "b.laz"
    result = segment_file(source, out, Layers(), writing=WriteOptions(extra=("entropy",)))
    again = read_cloud(out)
    assert np.array_equal(again.fields["classification"], layers_of(result))
    assert np.array_equal(again.fields["entropy"], result.fields["entropy"])


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("there.las", OutputExistsError),
        ("no/such.las", MissingFileError),
        ("a.doc", UnsupportedError),
        ("in.las", InputError),
    ],
)
def test_an_output_that_cannot_be_is_refused_before_the_work(tmp_path, name, error):
    source = make_las(tmp_path / "in.las", count=5)
    (tmp_path / "there.las").write_text("mine")
    model = Layers()
    with pytest.raises(error):
        segment_file(source, tmp_path / name, model)
    assert model.seen_memory == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.las", "there.las"]


def test_a_failure_leaves_nothing_behind(tmp_path):
    source = make_las(tmp_path / "in.las", count=5)
    classes = tuple(ClassInfo(id=i, name=str(i), color="#000000") for i in (300, 301))
    with pytest.raises(GeomixError, match="LAS holds class ids 0 to 255, got 300"):
        segment_file(source, tmp_path / "out.las", Layers(classes))
    assert [p.name for p in tmp_path.iterdir()] == ["in.las"]


def test_outputs_of_one_input_and_of_several(tmp_path):
    inputs = [tmp_path / name for name in ("a.laz", "b.bin", "c.pcd.bin", "scene")]
    (tmp_path / "scene").mkdir()
    assert outputs_for(inputs[:1], tmp_path / "out.ply") == {inputs[0]: tmp_path / "out.ply"}
    names = [path.relative_to(tmp_path).as_posix() for path in outputs_for(inputs, tmp_path / "out").values()]
    assert names == ["out/a.laz", "out/b.label", "out/c_lidarseg.bin", "out/scene.npz"]
    assert outputs_for(inputs[:1], tmp_path / "out", ".png") == {inputs[0]: tmp_path / "out" / "a.laz.png"}
    assert outputs_for(inputs[:1], tmp_path / "out") == {inputs[0]: tmp_path / "out" / "a.laz"}
    with pytest.raises(InputError, match="4 inputs go to a folder"):
        outputs_for(inputs, tmp_path / "out.ply")
    with pytest.raises(InputError, match="one file or more"):
        outputs_for([], tmp_path / "out")
    with pytest.raises(InputError, match=r"called a\.laz"):
        outputs_for([inputs[0], tmp_path / "x" / "a.laz"], tmp_path / "out")


def test_an_output_may_replace_its_input_when_that_is_allowed(tmp_path):
    source = make_las(tmp_path / "in.las", count=5)
    check_output(source, source, overwrite=True)
    segment_file(source, source, Layers(), overwrite=True)
    assert len(CLASSES) == 5
    assert set(read_cloud(source).fields["classification"]) <= {info.id for info in CLASSES}


def test_a_ply_with_bad_points_keeps_every_row(tmp_path):
    coord = scatter(60)
    coord[[3, 9]] = 0
    coord[20] = np.nan
    write_cloud(Cloud.from_arrays(coord), tmp_path / "a.ply")
    segment_file(tmp_path / "a.ply", tmp_path / "b.ply", Layers())
    again = read_cloud(tmp_path / "b.ply")
    assert np.array_equal(again.coord, coord, equal_nan=True)
    assert np.flatnonzero(again.fields["classification"] == 0).tolist() == [3, 9, 20]


def test_a_mesh_without_normals_gives_them_by_its_faces(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    rows = np.array(
        [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)], dtype=[("x", "f8"), ("y", "f8"), ("z", "f8")]
    )
    faces = np.empty(2, dtype=[("vertex_indices", "O")])
    faces["vertex_indices"] = [np.array([0, 1, 2], np.int32), np.array([0, 2, 3], np.int32)]
    vertex = plyfile.PlyElement.describe(rows, "vertex")
    plyfile.PlyData([vertex, plyfile.PlyElement.describe(faces, "face")]).write(str(tmp_path / "a.ply"))
    seen = []

    class Looking(Layers):
        def forward(self, grid_coord, feat, *args, **kwargs):
            seen.append(feat)
            return super().forward(grid_coord, feat, *args, **kwargs)

    model = Looking(inputs={"voxel": 0.5, "features": ["normal"]})
    found = segment(tmp_path / "a.ply", model)
    assert seen[0].tolist() == [[0, 0, 1]] * 4
    assert "normal" not in found.fields
    assert "normals are taken from the 2 faces" in caplog.text
    plyfile.PlyData([vertex]).write(str(tmp_path / "b.ply"))
    with pytest.raises(InputError, match="needs normal"):
        segment(tmp_path / "b.ply", model)
