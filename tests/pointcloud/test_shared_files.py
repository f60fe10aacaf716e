"""Every real file runs the whole way, or fails with one clear line."""

from pathlib import Path

import numpy as np
import pytest

from geomix.errors import FormatError, GeomixError
from pointcloud.io import read_cloud
from pointcloud.predict import segment_file
from pointcloud.predict.names import outputs_for
from tests.helpers import ROOT, shared_data
from tests.pointcloud.making import Layers, tiny_model

FAILS = {
    "LitePT/preprocessing/scannet/meta_data/scannetv2-labels.combined.tsv",
    "PDAL/garbage_nVariableLength.las",
    "PDAL/simple-laszip-compressor-version-1.2r0.laz",
    "ign-pdal-tools/Semis_2022_0906_6665_LA93_IGN69_nok.laz",
    "lidar-prod/dummy_file1.las",
    "manifest.json",
    "mmdetection3d/data/s3dis/semantic_mask/Area_1_office_2.bin",
    "mmdetection3d/data/scannet/semantic_mask/scene0000_00.bin",
    "mmdetection3d/data/semantickitti/sequences/00/labels/000000.label",
    "semantic-kitti-api/semantic-kitti.yaml",
    "spvnas/000000.label",
}


def files():
    import os

    folder = Path(os.environ.get("GEOMIX_SHARED_DATA", ROOT.parent / "shared" / "data")) / "pointcloud"
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()) or ["ign-pdal-tools"]


@pytest.mark.parametrize("name", files())
def test_it_runs_or_fails_with_one_clear_line(tmp_path, name):
    source = shared_data(f"pointcloud/{name}")
    out = outputs_for([source], tmp_path)[source]
    if source.suffix in (".json", ".yaml", ".tsv"):
        out = out.with_suffix(".ply")
    # A fresh network on what is small, the numbers of layers on what would take minutes.
    model = tiny_model() if source.stat().st_size < 100_000 else Layers()
    if name in FAILS:
        with pytest.raises(FormatError) as caught:
            segment_file(source, out, model)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400 + len(str(source))
        assert not out.exists()
        return
    result = segment_file(source, out, model)
    cloud = read_cloud(source)
    assert np.array_equal(result.coord, cloud.coord, equal_nan=True)
    assert result.fields["classification"].shape == (len(cloud),)
    if out.suffix == ".label":
        assert out.stat().st_size == 4 * len(cloud)
    else:
        again = read_cloud(out)
        assert np.array_equal(again.coord, cloud.coord, equal_nan=True)
        assert np.array_equal(again.fields["classification"], result.fields["classification"])
        assert set(cloud.fields) - {"classification"} <= set(again.fields)


def test_errors_are_one_kind_for_the_caller():
    assert issubclass(FormatError, GeomixError)
