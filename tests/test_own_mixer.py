"""What every mixer promises, and that one with a state is one file for all models that use it."""

import pytest
import torch
from torch import Tensor, nn

import pointcloud.model
import sits.model
from geomix import Encoder, Segments
from geomix.errors import UnsupportedError
from geomix.mixers import MIXERS, Mixer, State, build_mixer

OPTIONS = {"tree_attention": {"edges": [[1, 2]]}, "concentration": {"shape": [4]}}


class RunningMean(Mixer):
    """Every token takes the mean of what it sees: the smallest mixer with a state."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.out = nn.Linear(dim, dim)

    @property
    def state_width(self) -> int:
        return self.out.in_features

    @property
    def can_observe(self) -> bool:
        return True

    def forward(
        self,
        x: Tensor,
        segments: Segments | None = None,
        *,
        state: State | None = None,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, State]:
        segments = segments or Segments.dense(*x.shape[:2])
        flat, owner = x.flatten(0, -2), segments.sequence_of_token
        after = self.observe(x, segments)
        before = State.empty(segments.num_sequences, x.shape[-1]) if state is None else state
        total, count = before.sum[owner], before.count[owner]
        valid = torch.ones(len(flat), dtype=torch.bool) if segments.valid is None else segments.valid
        sees = (
            (owner[:, None] == owner) & (segments.block_of_token[:, None] >= segments.block_of_token) & valid
        )
        total, count = total + sees.to(flat.dtype) @ flat, count + sees.sum(1)
        y = self.out(total / count.clamp(min=1)[:, None]).view(x.shape)
        return (y, before.merge(after)) if return_state else y

    def observe(self, x: Tensor, segments: Segments | None = None) -> State:
        segments = segments or Segments.dense(*x.shape[:2])
        flat = x.flatten(0, -2)
        if segments.valid is not None:
            flat = flat.masked_fill(~segments.valid[:, None], 0.0)
        total = flat.new_zeros(segments.num_sequences, flat.shape[1])
        return State(total.index_add(0, segments.sequence_of_token, flat), segments.count)

    def read(self, x: Tensor, state: State, segments: Segments | None = None) -> Tensor:
        segments = segments or Segments.dense(*x.shape[:2])
        mean = self.out(state.total / state.count.clamp(min=1)[:, None])
        return mean[segments.sequence_of_token].view(x.shape)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MIXERS, "running_mean", RunningMean)
    torch.manual_seed(0)


@pytest.mark.parametrize("name", MIXERS)
def test_a_mixer_observes_where_it_says_so_and_refuses_by_name_elsewhere(name: str) -> None:
    mixer = build_mixer({"name": name, **OPTIONS.get(name, {})}, 8)
    x = torch.randn(2, 4, 8)
    if mixer.can_observe:
        state = mixer.observe(x)
        assert state.sum.shape == (2, mixer.state_width)
        torch.testing.assert_close(mixer.read(x, state), mixer(x))
    else:
        assert mixer.state_width is None
        with pytest.raises(UnsupportedError, match=type(mixer).__name__):
            mixer.observe(x)
        with pytest.raises(UnsupportedError, match=type(mixer).__name__):
            mixer.read(x, State.empty(2, 8))


def test_a_new_mixer_with_a_state_runs_in_an_encoder_in_one_call_or_in_two() -> None:
    encoder = Encoder(8, 2, {"name": "running_mean"}).eval()
    x = torch.randn(3, 7, 8)
    both = encoder(x, Segments.dense(3, 7, causal=True))
    first, state = encoder(x[:, :4], Segments.dense(3, 4, causal=True), return_state=True)
    second = encoder(x[:, 4:], Segments.dense(3, 3, causal=True), state=state)
    torch.testing.assert_close(torch.cat([first, second], 1), both)


def test_a_new_mixer_with_a_state_streams_a_cloud_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"encoder_depths": [1], "encoder_channels": [8], "decoder_depths": [], "decoder_channels": []}
    model = pointcloud.model.build_model(
        {"in_channels": 4, "classes": 3, "mixer": {"name": "running_mean"}, "patch_size": None, **sizes}
    ).eval()
    monkeypatch.setattr(model, "slice_for", lambda voxels, memory: 16)
    cells = torch.randperm(256)[:90]
    voxels = torch.stack([cells // 32, cells // 4 % 8, cells % 4], 1)
    feat = torch.randn(90, 4)
    with torch.no_grad():
        torch.testing.assert_close(model(voxels, feat, memory=1), model(voxels, feat), rtol=1e-5, atol=1e-5)


def test_a_new_mixer_with_a_state_keeps_the_state_of_a_scene() -> None:
    stage = {"depth": 2, "mixer": {"name": "running_mean"}, "mlp_ratio": 2}
    config = {"bands": 3, "classes": 2, "dim": 8, "temporal": stage, "spatial": stage, "causal": True}
    model = sits.model.build_model(config).eval()
    values, days = torch.rand(1, 5, 3, 4, 4), torch.tensor([3, 20, 40, 90, 200])
    valid = torch.rand(1, 5, 4, 4) > 0.2
    with torch.no_grad():
        state = model.observe(values[:, :2], days[:2], valid[:, :2])
        state = model.observe(values[:, 2:], days[2:], valid[:, 2:], state)
        seen = valid.any(1).unfold(1, 2, 2).unfold(2, 2, 2).any(-1).any(-1)
        torch.testing.assert_close(model.read(state, seen), model(values, days, valid), rtol=1e-5, atol=1e-5)
