"""Random changes: what they change, and what they must leave alone."""

import numpy as np
import pytest

from pointcloud.cloud import Cloud
from pointcloud.data.augment import Augment, augment, elastic, recolor, rotation, turn, views


def cloud(count: int = 500) -> Cloud:
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(count, 3))
    return Cloud.from_arrays(
        rng.uniform(0, 10, (count, 3)) + 5e5,
        normal=(normal / np.linalg.norm(normal, axis=1, keepdims=True)).astype(np.float32),
        color=rng.uniform(0, 1, (count, 3)).astype(np.float32),
        intensity=rng.uniform(0, 1, count).astype(np.float32),
        label=np.arange(count),
    )


STRONG = Augment(
    tilt=5,
    jitter=0.01,
    drop_points=0.5,
    drop_fields=0.5,
    elastic=((1.0, 0.2),),
    brightness=0.2,
    color_noise=0.05,
)


def test_the_generator_decides_everything() -> None:
    one, two, three = (
        augment(cloud(), np.random.default_rng(seed), STRONG, ("color",)) for seed in (1, 1, 2)
    )
    assert np.array_equal(one.coord, two.coord)
    assert len(one) != len(three) or not np.array_equal(one.coord, three.coord)


def test_fields_follow_their_points() -> None:
    before = cloud()
    after = augment(before, np.random.default_rng(3), Augment(scale=(1, 1), drop_points=0.9))
    kept = after.fields["label"]
    assert np.array_equal(after.fields["color"], before.fields["color"][kept])
    distance = np.linalg.norm(after.coord[1:] - after.coord[:-1], axis=1)
    np.testing.assert_allclose(
        distance, np.linalg.norm(np.diff(before.coord[kept], axis=0), axis=1), atol=1e-6
    )


def test_nothing_changes_where_nothing_is_asked_for() -> None:
    before = cloud()
    after = augment(before, np.random.default_rng(0), Augment(rotate=0, flip=False, scale=(1, 1)))
    np.testing.assert_allclose(after.coord, before.coord - before.coord.mean(0), atol=1e-6)
    assert set(after.fields) == set(before.fields)


def test_heights_survive_turns_about_the_vertical() -> None:
    before = cloud()
    after = augment(before, np.random.default_rng(5), Augment(scale=(1, 1)))
    np.testing.assert_allclose(np.ptp(after.coord[:, 2]), np.ptp(before.coord[:, 2]), atol=1e-9)


def test_normals_turn_with_their_surface() -> None:
    flat = Cloud.from_arrays([[1.0, 0, 0], [0, 1, 0]], normal=np.array([[1, 0, 0], [0, 0, 1]], np.float32))
    turned = turn(flat, rotation(2, np.pi / 2))
    np.testing.assert_allclose(turned.coord, [[0, 1, 0], [-1, 0, 0]], atol=1e-12)
    np.testing.assert_allclose(turned.fields["normal"], [[0, 1, 0], [0, 0, 1]], atol=1e-6)


def test_optional_fields_go_and_others_stay() -> None:
    changes = Augment(drop_fields=1.0)
    after = augment(cloud(), np.random.default_rng(0), changes, optional=("color",))
    assert "color" not in after.fields
    assert "intensity" in after.fields


def test_elastic_waves_move_neighbours_together() -> None:
    coord = np.random.default_rng(0).uniform(0, 20, (2000, 3))
    moved = elastic(coord, np.random.default_rng(1), 5.0, 2.0) - coord
    assert 0.1 < moved.std() < 2
    near = elastic(coord + 0.01, np.random.default_rng(1), 5.0, 2.0) - coord - 0.01
    assert np.abs(near - moved).max() < 0.1 * moved.std()
    assert elastic(coord[:0], np.random.default_rng(1), 5.0, 2.0).shape == (0, 3)


def test_colours_stay_colours() -> None:
    out = recolor(cloud().fields, np.random.default_rng(0), 0.5, 0.3)
    assert out["color"].min() >= 0
    assert out["color"].max() <= 1
    assert out["color"].dtype == np.float32
    assert np.array_equal(out["label"], cloud().fields["label"])


def test_views_are_eight_different_rigid_ones() -> None:
    before = cloud(20)
    seen = [view(before).coord for view in views()]
    assert np.array_equal(seen[0], before.coord)
    assert len({one.round(3).tobytes() for one in seen}) == 8
    for one in seen:
        np.testing.assert_allclose(one[:, 2], before.coord[:, 2])
        np.testing.assert_allclose(
            np.linalg.norm(np.diff(one, axis=0), axis=1),
            np.linalg.norm(np.diff(before.coord, axis=0), axis=1),
        )


@pytest.mark.parametrize("count", [0, 1])
def test_tiny_clouds_survive(count: int) -> None:
    assert len(augment(cloud(count), np.random.default_rng(0), STRONG)) <= count
