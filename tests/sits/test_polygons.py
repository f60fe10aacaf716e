import geopandas as gpd
import numpy as np
import pytest
import shapely

from geomix.cli import run
from geomix.errors import InputError, OutputExistsError
from sits.cli.options import Outputs
from sits.io.cog import Layer, new_cog
from sits.io.legend import NODATA, Legend
from sits.polygons import polygonize_file
from tests.sits.making import CLASSES, TRANSFORM, grid

LEGEND = Legend(CLASSES)
PIXEL = abs(TRANSFORM.a * TRANSFORM.e)


def write_map(path, codes):
    place = grid(codes.shape)
    layer = Layer("uint8", NODATA, ("class",), {"GEOMIX_CLASSES": LEGEND.to_json()}, LEGEND.colormap)
    with new_cog(path, place, layer) as sink:
        sink.write(codes[None], place.whole)
    return path


def random_codes(seed=0, shape=(40, 30)):
    rng = np.random.default_rng(seed)
    coarse = LEGEND.codes[rng.integers(0, 3, (shape[0] // 4, shape[1] // 3))]
    codes = np.kron(coarse, np.ones((4, 3), dtype=np.uint8))
    codes[rng.random(codes.shape) < 0.05] = NODATA
    return codes


def read(path):
    frame = gpd.read_file(path)
    return frame.assign(key=[shapely.normalize(piece).wkb for piece in frame.geometry]).sort_values("key")


def test_polygons_cover_each_class_exactly(tmp_path):
    codes = random_codes()
    found = gpd.read_file(polygonize_file(write_map(tmp_path / "map.tif", codes), tmp_path / "map.gpkg"))
    assert found.crs.to_epsg() == 32633
    assert found.geometry.is_valid.all()
    for entry in CLASSES:
        part = found[found["class_id"] == entry.id]
        assert set(part["class_name"]) == {entry.name}
        assert part.geometry.area.sum() == pytest.approx((codes == entry.id).sum() * PIXEL, rel=1e-9)
        assert part["area_ha"].sum() == pytest.approx((codes == entry.id).sum() * PIXEL / 1e4, rel=1e-9)


@pytest.mark.parametrize("rows", [1, 7, 16])
def test_strips_of_any_height_give_the_same_polygons(tmp_path, rows):
    path = write_map(tmp_path / "map.tif", random_codes())
    whole = read(polygonize_file(path, tmp_path / "whole.gpkg"))
    strips = read(polygonize_file(path, tmp_path / "strips.gpkg", rows=rows))
    assert len(strips) == len(whole)
    assert strips["class_id"].tolist() == whole["class_id"].tolist()
    for first, second in zip(strips.geometry, whole.geometry, strict=True):
        assert first.symmetric_difference(second).area < 1e-6 * PIXEL


def test_small_areas_fall_to_their_neighbour(tmp_path):
    codes = np.zeros((20, 20), dtype=np.uint8)
    codes[5, 5] = 1
    codes[10:14, 10:14] = 8
    path = write_map(tmp_path / "map.tif", codes)
    assert sorted(gpd.read_file(polygonize_file(path, tmp_path / "all.gpkg"))["class_id"]) == [0, 1, 8]
    few = gpd.read_file(polygonize_file(path, tmp_path / "few.gpkg", smallest=4))
    assert sorted(few["class_id"]) == [0, 8]
    assert few.geometry.area.sum() == pytest.approx(400 * PIXEL)


def test_the_command_refuses_what_it_cannot_write(tmp_path, capsys):
    path = write_map(tmp_path / "map.tif", random_codes())
    assert run(["sits", "polygonize", str(path), "-o", str(tmp_path / "a.gpkg"), "--quiet"]) == 0
    assert capsys.readouterr().out.strip().endswith("a.gpkg")
    with pytest.raises(InputError, match=r"name it \.gpkg"):
        polygonize_file(path, tmp_path / "map.shp")
    with pytest.raises(OutputExistsError):
        polygonize_file(path, tmp_path / "a.gpkg")


def test_an_empty_map_leaves_no_file(tmp_path):
    path = write_map(tmp_path / "map.tif", np.full((8, 8), NODATA, dtype=np.uint8))
    with pytest.raises(InputError, match="shows no class at all"):
        polygonize_file(path, tmp_path / "map.gpkg")
    assert not (tmp_path / "map.gpkg").exists()


def test_a_preview_is_drawn_of_a_finished_map(tmp_path):
    path = write_map(tmp_path / "map.tif", random_codes())
    assert run(["sits", "preview", str(path), "-o", str(tmp_path / "map.png"), "--quiet"]) == 0
    assert (tmp_path / "map.png").stat().st_size > 1000


def test_the_old_name_of_a_picture_still_works_and_says_the_new_one(tmp_path, caplog):
    path = write_map(tmp_path / "map.tif", random_codes())
    assert run(["sits", "quicklook", str(path), "-o", str(tmp_path / "map.png"), "--quiet"]) == 0
    paths = Outputs(quicklook=tmp_path / "old.png").beside(path)
    assert paths.preview == tmp_path / "old.png"
    assert "--quicklook is now --preview" in caplog.text
