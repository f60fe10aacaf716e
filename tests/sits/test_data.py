"""Labelled series, crops and batches, and the random changes to them."""

import json
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest
import rasterio
import torch
from affine import Affine

from geomix.checkpoint import ClassInfo
from geomix.errors import FormatError, InputError, MissingFileError
from geomix.learn.batches import SampleData
from sits.data import IGNORE, Crops, LabelledSeries, Sample, collate, open_splits
from sits.data.augment import Augment, augment, change_gain, cut_off, drop_dates, flip, shift_days
from sits.data.batches import Whole
from sits.data.inputs import Inputs
from sits.data.labelled import measure, number_labels
from sits.data.parcels import ParcelData, fold_of, read_parcels
from sits.data.sources import PastisData, SceneData, SyntheticData, divide
from sits.grid import Grid, Window
from sits.io.pastis import CLASSES as PASTIS
from sits.io.pastis import ROTATION, PastisFolder
from sits.series import TimeSeries
from sits.synthetic import BANDS, make_scene, write_geotiffs, write_pastis

INPUTS = Inputs(bands=BANDS)
NORMAL = Inputs(bands=("B2",), mean=(0.0,), std=(1.0,))
CLASSES = tuple(ClassInfo(id=code, name=name, color=color) for code, (name, color) in enumerate(PASTIS[:10]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_pastis(tmp_path_factory.mktemp("pastis") / "set", patches=10, size=16, dates=5, seed=2)


def ramp(dates=4, rows=6, columns=8, name="ramp"):
    """A series whose pixels tell where and when they are: date * 10000 + row * 100 + column."""
    place = np.arange(rows)[:, None] * 100 + np.arange(columns)
    images = (np.arange(dates)[:, None, None] * 10000 + place).astype(np.float32)[:, None]

    days = tuple(date(2018, 9, 11) + timedelta(days=10 * step) for step in range(dates))
    nowhere = Grid(None, Affine.identity(), rows, columns)
    series = TimeSeries.from_arrays(images, days, ("B2",), nowhere, name=name)
    return LabelledSeries(series, place.astype(np.int64) % 3)


@pytest.mark.parametrize("experiment", [1, 4])
def test_pastis_is_divided_by_the_published_rotation(folder, experiment):
    splits = open_splits(PastisData(experiment=experiment), folder, INPUTS, CLASSES)
    patches = PastisFolder(folder).patches
    found = [
        {patches[int(s.name.split("_")[1])].fold for s in part}
        for part in (splits.train, splits.val, splits.test)
    ]
    train, val, test = ROTATION[experiment]
    assert found == [set(train), {val}, {test}]
    assert len(splits.of("all")) == 10


def test_statistics_come_from_the_training_folds_alone(folder, tmp_path):
    splits = open_splits(PastisData(), folder, INPUTS, CLASSES)
    published = PastisFolder(folder).published_norms
    mean = np.mean([published[fold][0] for fold in (1, 2, 3)], axis=0) / 10000
    assert splits.inputs.mean == pytest.approx(mean.tolist())
    bare = tmp_path / "bare"
    bare.mkdir()
    for entry in folder.iterdir():
        if entry.name != "NORM_S2_patch.json":
            (bare / entry.name).symlink_to(entry)
    measured = open_splits(PastisData(), bare, INPUTS, CLASSES).inputs
    assert measured.mean == pytest.approx(measure(splits.train)[0])
    assert measured.mean != pytest.approx(measure(splits.of("all"))[0], rel=1e-6)
    assert measured.mean == pytest.approx(mean.tolist(), rel=0.05)


def test_void_and_nodata_are_masked_and_numbers_are_reflectance(folder):
    series = open_splits(PastisData(), folder, INPUTS, CLASSES).of("all")
    raw = PastisFolder(folder)
    for one, patch in zip(sorted(series, key=lambda s: s.name), raw.patches.values(), strict=True):
        values, valid = one.series.read(one.whole)
        counts, codes = raw.values(patch), raw.labels(patch)
        assert np.array_equal(valid, (counts != -10000).all(1))
        assert values[:, 3][valid] == pytest.approx(counts[:, 3][valid] / 10000, abs=1e-6)
        assert np.array_equal(one.labels == IGNORE, codes == 19)


def test_bands_are_taken_by_name(folder):
    chosen = Inputs(bands=("B8A", "B3"))
    one = open_splits(PastisData(), folder, chosen, CLASSES).test[0]
    every = open_splits(PastisData(), folder, INPUTS, CLASSES).test[0]
    assert np.array_equal(one.series.read(one.whole)[0], every.series.read(every.whole)[0][:, [7, 1]])
    with pytest.raises(InputError, match="B10"):
        open_splits(PastisData(), folder, Inputs(bands=("B10",)), CLASSES)


def test_a_folder_out_of_time_order_is_sorted(tmp_path):
    root = write_pastis(tmp_path / "set", patches=5, size=8, dates=4)
    rows = json.loads((root / "metadata.geojson").read_text())
    fields = rows["features"][4]["properties"]
    fields["dates-S2"] = dict(zip(fields["dates-S2"], [20190601, 20181001, 20190301, 20181201], strict=True))
    (root / "metadata.geojson").write_text(json.dumps(rows))
    one = open_splits(PastisData(), root, INPUTS, CLASSES).test[0]
    assert [day.month for day in one.dates] == [10, 12, 3, 6]
    raw = np.load(root / "DATA_S2" / "S2_10004.npy")
    assert one.series.read(one.whole)[0][0] == pytest.approx(np.maximum(raw[1], 0) / 10000, abs=1e-6)


def test_an_unknown_code_names_file_and_codes():
    with pytest.raises(InputError, match="here: holds code 7"):
        number_labels(np.array([[0, 1, 7]]), (1, 2), (0,), "here")
    assert number_labels(np.array([[0, 2, 1]]), (2, 1), (0,), "here").tolist() == [[IGNORE, 0, 1]]


@pytest.mark.parametrize("side", ["top", "bottom", "left", "right"])
def test_a_third_is_held_out_behind_a_gap(side):
    kept, tested = divide(Window(0, 0, 101, 100), side, 16)
    used = np.zeros((101, 100), dtype=int)
    used[kept.slices] += 1
    used[tested.slices] += 2
    along = used[:, 0] if side in ("top", "bottom") else used[0]
    order = along if side in ("bottom", "right") else along[::-1]
    assert set(np.unique(used)) == {0, 1, 2}
    assert [(order == value).sum() for value in (1, 0, 2)] == [len(order) - 16 - 33, 16, 33]
    assert order.tolist() == sorted(order, key=[1, 0, 2].index)


def test_a_small_scene_cannot_be_divided():
    with pytest.raises(InputError, match="too few"):
        divide(Window(0, 0, 20, 20), "top", 16)


def test_a_labelled_scene_is_read_as_prediction_reads_it(tmp_path):
    scene = make_scene((48, 40), seed=1, dates=4)
    files = write_geotiffs(scene, tmp_path)
    data = SceneData(images="S2_*.tif", labels="labels.tif", unlabelled=(19,), held_out="left", gap=4)
    splits = open_splits(data, tmp_path, INPUTS, CLASSES)
    from sits.io import open_series

    assert len(files) == 4
    values, valid = open_series(files).select(BANDS).read()
    found = splits.test[0].series.read(splits.test[0].whole)
    assert np.array_equal(found[0], values)
    assert np.array_equal(found[1], valid)
    assert (splits.test[0].labels[:, 13:] == IGNORE).all()
    assert (splits.train[0].labels[:, :17] == IGNORE).all()
    assert (splits.train[0].part.col, splits.train[0].part.width) == (17, 23)
    with pytest.raises(MissingFileError, match="no file matches"):
        open_splits(data.model_copy(update={"images": "*.jp2"}), tmp_path, INPUTS, CLASSES)
    with pytest.raises(MissingFileError, match="label raster"):
        open_splits(data.model_copy(update={"labels": "other.tif"}), tmp_path, INPUTS, CLASSES)
    with pytest.raises(MissingFileError, match="--data"):
        open_splits(data, None, INPUTS, CLASSES)


def test_synthetic_data_are_made_once(tmp_path):
    data = SyntheticData(patches=5, size=8, dates=3)
    first = open_splits(data, None, INPUTS, CLASSES, tmp_path)
    time = (tmp_path / "synthetic" / "metadata.geojson").stat().st_mtime_ns
    assert len(first.train) == 3
    open_splits(data, None, INPUTS, CLASSES, tmp_path)
    assert (tmp_path / "synthetic" / "metadata.geojson").stat().st_mtime_ns == time
    (tmp_path / "synthetic" / "metadata.geojson").unlink()
    open_splits(data, None, INPUTS, CLASSES, tmp_path)


def test_an_unknown_or_empty_split_is_an_error(folder):
    splits = open_splits(PastisData(), folder, INPUTS, CLASSES)
    with pytest.raises(InputError, match="no split 'tset'; did you mean 'test'"):
        splits.of("tset")
    with pytest.raises(InputError, match="no val split"):
        replace(splits, val=[]).of("val")


def test_every_pixel_is_used():
    crops = Crops([ramp()], NORMAL, size=4, seed=0)
    seen = {int(value) for number in range(300) for value in crops[number].values[0].ravel()}
    assert seen == {row * 100 + column for row in range(6) for column in range(8)}


def test_a_crop_depends_on_its_number_and_the_seed_alone():
    one, again = (Crops([ramp(), ramp(name="b")], NORMAL, 3, seed=4) for _ in range(2))
    assert np.array_equal(one[7].values, again[7].values)
    assert {one[number].name.split()[0] for number in range(20)} == {"ramp", "b"}
    other = Crops([ramp(), ramp(name="b")], NORMAL, 3, seed=5)
    assert any(not np.array_equal(one[number].values, other[number].values) for number in range(5))


def test_crops_stay_inside_their_part_and_hold_labels():
    series = ramp(rows=20, columns=20)
    labels = np.full((20, 20), IGNORE)
    labels[9, 9] = 1
    part = replace(series, labels=labels, within=Window(4, 6, 9, 8))
    crops = Crops([part], NORMAL, 4, seed=0)
    for number in range(30):
        values = crops[number].values[0, 0]
        assert (values // 100).min() >= 4
        assert (values // 100).max() < 13
        assert (values % 100).min() >= 6
        assert (values % 100).max() < 14
        assert (crops[number].labels != IGNORE).any()


def test_balanced_crops_show_rare_classes():
    series = ramp(rows=40, columns=40)
    labels = np.zeros((40, 40), dtype=np.int64)
    labels[3, 3] = 2
    rare = replace(series, labels=labels)
    shares = [
        np.mean([(Crops([rare], NORMAL, 4, 0, balanced=share)[n].labels == 2).any() for n in range(100)])
        for share in (0.0, 1.0)
    ]
    assert shares[0] < 0.1
    assert 0.3 < shares[1] < 0.7


def test_too_small_or_unlabelled_series_are_refused():
    with pytest.raises(InputError, match="too few for crops of 9"):
        Crops([ramp()], NORMAL, 9, seed=0)
    series = ramp()
    with pytest.raises(InputError, match="no labelled pixel"):
        Crops([replace(series, labels=np.full((6, 8), IGNORE))], NORMAL, 4, 0)
    with pytest.raises(InputError, match="no series"):
        Crops([], NORMAL, 4, 0)


def test_short_series_are_filled_with_invalid_dates():
    batch = collate([ramp(dates=dates).sample(Window(0, 0, 2, 2), NORMAL) for dates in (2, 4)])
    assert batch.values.shape == (2, 4, 1, 2, 2)
    assert batch.valid[0, :, 0, 0].tolist() == [True, True, False, False]
    assert batch.days.tolist() == [[10, 20, 20, 20], [10, 20, 30, 40]]
    assert (batch.values[0, 2:] == 0).all()


def test_an_epoch_follows_from_the_seed_that_training_sets():
    data = SampleData(Crops([ramp()], NORMAL, 3, 0), Whole([], NORMAL), collate, per_epoch=6, batch_size=2)

    def names(seed):
        torch.manual_seed(seed)
        return [batch.names for batch in data.train_dataloader()]

    assert names(1) == names(1) != names(2)
    assert len(data.train_dataloader()) == 3
    assert data.val_dataloader() == []


def sample(seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(6, 2, 4, 4)).astype(np.float32)
    valid = rng.random((6, 4, 4)) > 0.1
    values = np.where(valid[:, None], values, 0).astype(np.float32)
    return Sample(values, valid, np.arange(6) * 10, rng.integers(0, 3, (4, 4)))


def test_flips_turn_images_masks_and_labels_alike():
    one = sample()
    one = one._replace(labels=np.arange(16).reshape(4, 4), values=one.values.copy())
    one.values[:, 0] = one.labels
    turns = [flip(one, np.random.default_rng(seed)) for seed in range(40)]
    for turned in turns:
        assert np.array_equal(turned.values[0, 0], turned.labels)
        order = turned.labels.ravel()
        assert np.array_equal(turned.valid.reshape(6, -1), one.valid.reshape(6, -1)[:, order])
    assert len({tuple(turned.labels.ravel()) for turned in turns}) == 8


def test_dates_are_hidden_but_never_all():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        kept = drop_dates(sample(), 0.99, rng).valid.any((1, 2))
        assert kept.any()
    assert not kept.all()


def test_a_cut_hides_all_later_dates_and_leaves_the_first():
    lengths = set()
    for seed in range(40):
        kept = cut_off(sample(), 0.3, np.random.default_rng(seed)).valid.any((1, 2))
        lengths.add(int(kept.sum()))
        assert kept.tolist() == sorted(kept, reverse=True)
    assert lengths == {2, 3, 4, 5, 6}


def test_a_shift_keeps_the_distance_of_days():
    moves = [shift_days(sample(), 2, np.random.default_rng(seed)).days - sample().days for seed in range(30)]
    assert all(len(set(move)) == 1 for move in moves)
    assert {int(move[0]) for move in moves} == {-2, -1, 0, 1, 2}


def test_gain_leaves_invalid_pixels_alone():
    one = sample()
    changed = change_gain(one, 0.1, np.random.default_rng(0))
    assert (changed.values[np.broadcast_to(~one.valid[:, None], one.values.shape)] == 0).all()
    assert not np.allclose(changed.values, one.values)
    assert changed.values.dtype == np.float32


def test_nothing_is_changed_unless_it_is_asked_for():
    one = sample()
    same = augment(one, np.random.default_rng(0), Augment())
    assert all(np.array_equal(a, b) for a, b in zip(one[:4], same[:4], strict=True))
    every = Augment(flips=True, drop_dates=0.5, cut_off=1, shift_days=9, gain=0.1)
    changed = augment(one, np.random.default_rng(3), every)
    assert not any(np.array_equal(a, b) for a, b in zip(one[:4], changed[:4], strict=True))


def parcel_table(folder, parcels=20, steps=3):
    import pandas as pd

    rows = [
        {
            "sample_id": f"p{parcel:02d}",
            "timestamp": pd.Timestamp(2023, 3, 1) + pd.Timedelta(days=10 * (steps - step)),
            "ewoc_code": 100 + parcel % 4,
            "S2-L2A-B02": 65535 if step == 1 else 100 * parcel + step,
            "S2-L2A-B8A": 3000,
        }
        for parcel in range(parcels)
        for step in range(steps)
    ]
    pd.DataFrame(rows).to_parquet(folder / "points.parquet")
    groups = {"SMALL": {"100": "wheat", "101": "maize", "102": "wheat"}}
    (folder / "groups.json").write_text(json.dumps(groups))
    return ParcelData(table="points.parquet", groups="groups.json", taxonomy="SMALL")


def test_parcels_are_series_of_one_pixel(tmp_path):
    data = parcel_table(tmp_path)
    found = read_parcels(tmp_path, data, ("B2", "B8A"), ("maize", "wheat"))
    assert [one.name for one in found][:3] == ["p00", "p01", "p02"]
    assert len(found) == 15
    assert [int(one.labels[0, 0]) for one in found][:3] == [1, 0, 1]
    values, valid = found[2].series.read(found[2].whole)
    assert list(found[2].dates) == sorted(found[2].dates)
    assert valid[:, 0, 0].tolist() == [True, False, True]
    assert values[:, :, 0, 0] == pytest.approx(np.array([[0.0202, 0.3], [0, 0], [0.02, 0.3]]))
    with pytest.raises(InputError, match="no parcel of rice"):
        read_parcels(tmp_path, data, ("B2",), ("rice",))
    with pytest.raises(FormatError, match="S2-L2A-B03"):
        read_parcels(tmp_path, data, ("B3",), ("wheat",))
    with pytest.raises(InputError, match="choose from SMALL"):
        read_parcels(tmp_path, data.model_copy(update={"taxonomy": "x"}), ("B2",), ("wheat",))
    with pytest.raises(MissingFileError, match="no such table"):
        read_parcels(tmp_path, data.model_copy(update={"table": "x"}), ("B2",), ("wheat",))


def test_folds_hold_each_parcel_once_and_each_class_alike(tmp_path):
    labels = np.repeat([0, 1, 2], [23, 11, 7])
    folds = fold_of(labels, 5, seed=0)
    assert np.bincount(folds).tolist() == [9, 8, 8, 8, 8]
    for label, count in ((0, 23), (1, 11), (2, 7)):
        assert set(np.bincount(folds[labels == label], minlength=5)) <= {count // 5, count // 5 + 1}
    assert not np.array_equal(folds, fold_of(labels, 5, seed=1))
    data = parcel_table(tmp_path)
    classes = [ClassInfo(id=code, name=name, color="#000000") for code, name in ((4, "maize"), (7, "wheat"))]
    tested = []
    for fold in range(5):
        chosen = data.model_copy(update={"test_fold": fold})
        splits = open_splits(chosen, tmp_path, Inputs(bands=("B2",)), classes)
        assert len(splits.train) + len(splits.test) == 15
        tested += [one.name for one in splits.test]
    assert len(set(tested)) == len(tested) == 15


@pytest.fixture
def labelled(tmp_path):
    """A scene on disk, its data configuration and what rewrites its labels."""
    write_geotiffs(make_scene((48, 40), seed=1, dates=4), tmp_path)
    with rasterio.open(tmp_path / "labels.tif") as source:
        profile, codes = source.profile, source.read()

    def rewrite(codes, **changes):
        with rasterio.open(tmp_path / "labels.tif", "w", **{**profile, **changes}) as target:
            target.write(codes)

    data = SceneData(images="S2_*.tif", labels="labels.tif", unlabelled=(19,), held_out=None)
    return data, codes, rewrite


@pytest.mark.parametrize("nodata", [None, float("nan"), -1.0])
def test_labels_without_a_value_are_unlabelled(labelled, tmp_path, nodata):
    data, codes, rewrite = labelled
    holes = codes.astype(np.float32)
    holes[:, :5] = np.nan if nodata is None else nodata
    rewrite(holes, dtype="float32", nodata=nodata)
    [scene] = open_splits(data, tmp_path, INPUTS, CLASSES).train
    assert (scene.labels[:5] == IGNORE).all()
    assert np.array_equal(scene.labels[5:] == IGNORE, codes[0, 5:] == 19)


def test_labels_of_another_grid_or_kind_are_refused(labelled, tmp_path):
    data, codes, rewrite = labelled
    with rasterio.open(tmp_path / "labels.tif") as source:
        moved = source.transform @ Affine.translation(1000, 0)
    rewrite(codes, transform=moved)
    with pytest.raises(InputError, match=r"labels.tif: lies on another grid than the images: transform"):
        open_splits(data, tmp_path, INPUTS, CLASSES)
    rewrite(codes + np.float32(0.5), dtype="float32", nodata=None)
    with pytest.raises(InputError, match="numbers that are not whole"):
        open_splits(data, tmp_path, INPUTS, CLASSES)
    (tmp_path / "fields.gpkg").write_bytes(b"")
    with pytest.raises(InputError, match="is no raster of labels.*train fields"):
        open_splits(data.model_copy(update={"labels": "fields.gpkg"}), tmp_path, INPUTS, CLASSES)
