"""One real SemanticKITTI scan through the whole pipeline: an overfit check, not an accuracy."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from geomix.checkpoint import load_model
from geomix.config import find_config, load_config
from geomix.learn.experiment import train
from pointcloud import read_cloud, segment, write_cloud
from pointcloud.data import LABEL, open_splits
from pointcloud.data.labels import SEMANTICKITTI_MAP, semantic_ids
from pointcloud.task.experiment import PointcloudConfig, PointcloudExperiment
from pointcloud.task.scoring import score
from tests.helpers import shared_data

POINTS = 6000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The points of the scan nearest to the sensor, as sequence 00 for training and 08 for the check."""
    scan, label = shared_data("pointcloud/spvnas/000000.bin"), shared_data("pointcloud/spvnas/000000.label")
    folder = tmp_path_factory.mktemp("kitti")
    points, ids = np.fromfile(scan, np.float32).reshape(-1, 4), np.fromfile(label, np.uint32)
    near = np.sort(np.argsort(np.linalg.norm(points[:, :2] - (8, 0), axis=1))[:POINTS])
    for sequence in ("00", "08"):
        for kind, values in (("velodyne", points[near]), ("labels", ids[near])):
            home = folder / "sequences" / sequence / kind
            home.mkdir(parents=True)
            values.tofile(home / f"000000.{'bin' if kind == 'velodyne' else 'label'}")
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> PointcloudConfig:
    """The shipped configuration with a network and a training of seconds."""
    values = yaml.safe_load(find_config("semantickitti_ppomv3", "pointcloud").read_text(encoding="utf-8"))
    values["model"] |= {"stem_kernel": 3, "drop_path": 0.0, "shuffle_orders": False}
    values["model"] |= {"encoder_depths": [1, 1, 1], "encoder_channels": [16, 24, 32]}
    values["model"] |= {"decoder_depths": [1, 1], "decoder_channels": [16, 24]}
    values["inputs"]["voxel"] = 0.2
    values["augment"] = {"rotate": 0, "flip": False, "scale": [1, 1]}
    values["train"].update(
        epochs=2, epoch_steps=20, batch_size=1, learning_rate=5e-3, warmup=0.1, workers=0, precision="fp32"
    )
    file = tmp_path_factory.mktemp("config") / "small.yaml"
    file.write_text(yaml.safe_dump(values))
    return load_config(file, "pointcloud", PointcloudConfig)


@pytest.fixture(scope="module")
def model_file(root: Path, small: PointcloudConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(PointcloudExperiment(small), tmp_path_factory.mktemp("run"), root, device="cpu")


def test_the_pipeline_learns_the_scan_it_is_shown(
    root: Path, small: PointcloudConfig, model_file: Path
) -> None:
    model = load_model(model_file)
    clouds = open_splits(small.data, root, SEMANTICKITTI_MAP.ids).train
    found = score(model, clouds, small.inputs)
    labels = clouds[0].read().fields[LABEL]
    commonest = np.bincount(labels[labels >= 0]).max() / (labels >= 0).sum()
    assert found["points"] == (labels >= 0).sum()
    assert found["oa"] > commonest + 0.1
    assert found["miou_official"] <= found["miou"]


def test_label_files_follow_the_official_ids(root: Path, model_file: Path, tmp_path: Path) -> None:
    scan = root / "sequences" / "08" / "velodyne" / "000000.bin"
    shutil.copy(scan, tmp_path / "000000.bin")
    result = segment(read_cloud(tmp_path / "000000.bin"), load_model(model_file))
    write_cloud(result, tmp_path / "000000.label")
    written = np.fromfile(tmp_path / "000000.label", np.uint32)
    assert len(written) == POINTS
    assert set(semantic_ids(written)) <= {0, *SEMANTICKITTI_MAP.ids}
    assert (written >> 16 == 0).all()
    numbers = SEMANTICKITTI_MAP.numbers(semantic_ids(written))
    assert torch.equal(
        torch.from_numpy(SEMANTICKITTI_MAP.to_ids(numbers)), torch.from_numpy(semantic_ids(written))
    )
