import pytest
import torch
from torch import nn

from geomix.learn.optim import adamw, warmup_cosine
from geomix.mixers import PoM


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 3)
        self.norm = nn.LayerNorm(3)
        self.table = nn.Embedding(4, 3)
        self.token = nn.Parameter(torch.zeros(1, 3))
        self.tied = nn.Linear(2, 3, bias=False)
        self.tied.weight = self.linear.weight
        self.mixer = PoM(2)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)


def test_only_matrices_decay():
    model = Toy()
    decayed, kept = adamw(model, 1e-3, 0.1).param_groups
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
    names = {id(p): n for n, p in model.named_parameters()}
    matrices = ["linear.weight", "mixer.w_h", "mixer.w_s", "mixer.w_o"]
    assert [names[id(p)] for p in decayed["params"]] == matrices
    others = {name for name in names.values() if not name.startswith("frozen")} - {*matrices}
    assert {names[id(p)] for p in kept["params"]} == others
    assert {"linear.bias", "norm.weight", "table.weight", "token", "mixer.coeff"} <= others


def test_a_model_without_matrices_can_be_trained():
    assert len(adamw(nn.LayerNorm(3), 1e-3, 0.1).param_groups) == 1


def test_the_rate_rises_then_falls_to_zero():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2.0)
    schedule = warmup_cosine(optimizer, 3, 9)
    rates = []
    for _ in range(10):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0]
    assert rates[4] == pytest.approx(1 + 3**0.5 / 2)
    assert rates[6] == pytest.approx(1.0)
    assert rates[9] == 0
    assert rates[3:] == sorted(rates[3:], reverse=True)
