"""The state of a scene on disk: updates equal the full run, and what cannot be added is refused."""

import json
from datetime import date

import numpy as np
import pytest
import rasterio

from geomix.checkpoint import save_model
from geomix.errors import FormatError, InputError, MissingFileError, OutputExistsError, UnsupportedError
from sits.io.options import MapOptions
from sits.predict import MapPaths, load_scorer, score_blocks, segment_file
from sits.state import (
    create_state,
    read_state,
    score_state,
    segment_and_keep,
    update_file,
    update_state,
)
from tests.sits import making
from tests.sits.making import DATES, TRANSFORM, numbers, write_folder

FIRST, LATER = DATES[:2], DATES[2:]


def save(path, rooms, seed=0):
    built = making.model(rooms, seed)
    save_model(built, built.card, path)
    return path


def series(dates=DATES, shape=(30, 26)):
    """Some pixels hidden on some dates, one place on all of them."""
    valid = np.random.default_rng(3).random((len(dates), *shape)) > 0.3
    valid[:, 4:8, 6:12] = False
    return making.series(numbers(len(dates), shape=shape), dates, valid=valid)


@pytest.fixture
def scorer(tmp_path):
    return load_scorer(save(tmp_path / "model.safetensors", {"causal": True}), "cpu")


def whole(dates=None):
    return series() if dates is None else series().between(dates[0], dates[-1])


def stitch(blocks, shape):
    scores = list(blocks)
    logits = np.full((len(scores[0].logits), *shape), np.nan, dtype=np.float32)
    counts = np.zeros(shape, dtype=int)
    for one in scores:
        logits[:, *one.window.slices] = one.logits
        counts[one.window.slices] = one.dates
    return logits, counts


@pytest.mark.parametrize("block", [8, 12, 64])
def test_an_update_equals_the_full_run(tmp_path, scorer, block):
    full = whole()
    expected, counts = stitch(score_blocks(scorer, full, 64), full.grid.shape)
    state = create_state(whole(FIRST), scorer, tmp_path / "state", "model", block)
    first = state.dates
    state = update_state(read_state(tmp_path / "state"), whole(LATER), scorer, block)
    found, seen = stitch(score_state(read_state(state.folder), scorer, block), full.grid.shape)
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    np.testing.assert_array_equal(seen, counts)
    assert (first, state.dates) == (FIRST, DATES)
    assert sorted(file.name for file in state.folder.iterdir()) == [
        "pixels.1.npy",
        "places.1.npy",
        "state.json",
        "sums.1.npy",
    ]


def test_days_count_from_the_season_of_the_first_date(tmp_path, scorer):
    dates = (date(2019, 3, 10), date(2019, 9, 20), date(2019, 10, 21))
    full = series(dates=dates)
    expected, _ = stitch(score_blocks(scorer, full, 64), full.grid.shape)
    state = create_state(full.between(last=dates[0]), scorer, tmp_path / "state", "model", 16)
    state = update_state(state, full.between(dates[1]), scorer, 16)
    found, _ = stitch(score_state(state, scorer, 16), full.grid.shape)
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("days", "message"),
    [(DATES[1:], "2019-05-02 is in the state"), ((date(2019, 4, 1),), "2019-04-01 comes too late")],
)
def test_a_late_or_changed_date_is_refused_with_the_remedy(tmp_path, scorer, days, message):
    state = create_state(whole(FIRST), scorer, tmp_path / "state", "model", 16)
    before = (state.folder / "state.json").read_bytes()
    with pytest.raises(InputError, match=message) as refusal:
        update_state(state, series(dates=days), scorer, 16)
    assert "segment --save-state" in str(refusal.value)
    assert (state.folder / "state.json").read_bytes() == before


def test_an_update_that_fails_leaves_the_state_as_it_was(tmp_path, scorer, monkeypatch):
    state = create_state(whole(FIRST), scorer, tmp_path / "state", "model", 8)
    kept = {file.name: file.read_bytes() for file in state.folder.iterdir()}
    calls = []

    def broken(*args, **how):
        calls.append(1)
        if len(calls) > 2:
            raise OSError("disk full")
        return right(*args, **how)

    right = type(scorer.model).observe
    monkeypatch.setattr(type(scorer.model), "observe", broken)
    with pytest.raises(OSError, match="disk full"):
        update_state(state, whole(LATER), scorer, 8)
    assert {file.name: file.read_bytes() for file in state.folder.iterdir()} == kept


def test_another_grid_or_model_is_refused(tmp_path, scorer):
    state = create_state(whole(FIRST), scorer, tmp_path / "state", "model", 16)
    with pytest.raises(InputError, match="another grid"):
        update_state(state, series(dates=LATER, shape=(30, 28)), scorer, 16)
    other = load_scorer(save(tmp_path / "other.safetensors", {"causal": True}, seed=1), "cpu")
    with pytest.raises(InputError, match="another model file"):
        update_state(state, whole(LATER), other, 16)


@pytest.mark.parametrize(
    ("rooms", "message"),
    [
        ({}, "causal: true"),
        ({"causal": True, "temporal": {"depth": 1, "mixer": {"name": "attention", "heads": 2}}}, "PoM alone"),
    ],
)
def test_a_model_without_a_state_says_what_is_needed(tmp_path, rooms, message):
    scorer = load_scorer(save(tmp_path / "model.safetensors", rooms), "cpu")
    with pytest.raises(UnsupportedError, match=message):
        create_state(whole(), scorer, tmp_path / "state", "model", 16)
    assert not (tmp_path / "state").exists()


def test_a_folder_in_use_is_not_taken(tmp_path, scorer):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("x")
    with pytest.raises(OutputExistsError, match="holds no state"):
        create_state(whole(), scorer, tmp_path / "mine", "model", 16, overwrite=True)
    create_state(whole(FIRST), scorer, tmp_path / "state", "model", 16)
    with pytest.raises(OutputExistsError, match="`update`"):
        create_state(whole(), scorer, tmp_path / "state", "model", 16)
    state = create_state(whole(), scorer, tmp_path / "state", "model", 16, overwrite=True)
    assert read_state(state.folder).dates == DATES
    assert len(list(state.folder.iterdir())) == 4


def test_a_missing_or_damaged_state_says_so(tmp_path, scorer):
    with pytest.raises(MissingFileError, match="--save-state"):
        read_state(tmp_path)
    state = create_state(whole(), scorer, tmp_path / "state", "model", 16)
    content = json.loads((state.folder / "state.json").read_text())
    for damage, kind, message in (
        ("{", FormatError, "damaged"),
        (
            json.dumps({**content, "format": 99}),
            FormatError,
            "another version of geomix; update",
        ),
        (json.dumps({**content, "acquisitions": [{"date": "x"}]}), FormatError, "damaged"),
    ):
        (state.folder / "state.json").write_text(damage)
        with pytest.raises(kind, match=message):
            read_state(state.folder)
    (state.folder / "state.json").write_text(json.dumps(content))
    (state.folder / "sums.0.npy").unlink()
    with pytest.raises(MissingFileError, match="make the state anew"):
        read_state(state.folder)


def test_files_in_a_state_and_maps_out(tmp_path):
    model = save(tmp_path / "model.safetensors", {"causal": True})
    files = write_folder(tmp_path / "images", numbers())
    once = segment_file(files, tmp_path / "once.tif", model, MapOptions(device="cpu"))
    paths = segment_and_keep(
        files[:2], tmp_path / "early.tif", model, tmp_path / "state", MapOptions(device="cpu")
    )
    assert paths.map.exists()
    updated = update_file(
        tmp_path / "state", files[2:], MapPaths(tmp_path / "late.tif", count=tmp_path / "n.tif")
    )
    with rasterio.open(once.map) as first, rasterio.open(updated.map) as second:
        np.testing.assert_array_equal(first.read(), second.read())
        assert first.transform == second.transform == TRANSFORM
        assert first.crs == second.crs
        for tag in ("GEOMIX_DATES", "GEOMIX_DAYS", "GEOMIX_OFFSETS", "GEOMIX_BANDS", "GEOMIX_MODEL_SHA256"):
            assert first.tags()[tag] == second.tags()[tag]
    assert (
        update_file(tmp_path / "state", write_folder(tmp_path / "new", numbers(1), [date(2019, 8, 1)]))
        is None
    )
    assert read_state(tmp_path / "state").dates[-1] == date(2019, 8, 1)
    with pytest.raises(OutputExistsError):
        update_file(tmp_path / "state", files, updated.map)


def test_a_state_is_mapped_without_new_images(tmp_path):
    model = save(tmp_path / "model.safetensors", {"causal": True})
    files = write_folder(tmp_path / "images", numbers())
    paths = segment_and_keep(files, tmp_path / "map.tif", model, tmp_path / "state", MapOptions(device="cpu"))
    kept = (tmp_path / "state" / "state.json").read_bytes()
    again = update_file(tmp_path / "state", output=tmp_path / "again.tif")
    assert again.map.read_bytes() == paths.map.read_bytes()
    assert (tmp_path / "state" / "state.json").read_bytes() == kept
    with pytest.raises(InputError, match="nothing to do; give new images"):
        update_file(tmp_path / "state")
    other = save(tmp_path / "other.safetensors", {"causal": True}, seed=1)
    with pytest.raises(InputError, match="another model file"):
        update_file(tmp_path / "state", output=tmp_path / "wrong.tif", model=other)
