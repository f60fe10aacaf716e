"""The bundled model on the one tile that it has never seen, from the command to the file."""

import laspy
import numpy as np
import pytest
import torch

from geomix.checkpoint import bundled_models
from geomix.cli import run
from geomix.learn.metrics import confusion, scores
from tests.helpers import shared_data
from tests.pointcloud.making import except_class, las_parts

IDS = (2, 3, 4, 5, 6)


def test_the_default_model_labels_a_tile_and_changes_nothing_else(tmp_path):
    if "aerial" not in dict(bundled_models("pointcloud")):
        pytest.skip("the model aerial is not bundled yet")
    source = shared_data("pointcloud/ign-pdal-tools/test_data_77055_627760_LA93_IGN69.laz")
    out = tmp_path / "out.laz"
    assert (
        run(["pointcloud", "segment", str(source), "-o", str(out), "--preview", str(tmp_path / "out.png")])
        == 0
    )
    old, new = las_parts(source), las_parts(out)
    for part in ("header", "vlrs", "gap", "evlrs"):
        assert new[part] == old[part], part
    assert np.array_equal(except_class(new["points"]), except_class(old["points"]))
    number = {one: index for index, one in enumerate(IDS)}
    truth, found = (np.asarray(laspy.read(path).classification) for path in (source, out))
    known = np.isin(truth, IDS)
    assert set(found.tolist()) <= set(IDS)
    pairs = [torch.tensor([number[i] for i in values[known].tolist()]) for values in (found, truth)]
    assert scores(confusion(*pairs, len(IDS)))["miou"] >= 0.80
