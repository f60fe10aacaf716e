"""One of several processes that mix one scene; started by test_distributed.py, says nothing if all is well.

python spread_worker.py RANK WORLD_SIZE RENDEZVOUS_FILE
"""

import copy
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from geomix import Encoder, PoM, Segments
from geomix.mixers import State
from geomix.parallel.spread import SpreadPoM, spread, sum_gradients

LENGTHS = torch.tensor([[3, 40, 0], [0, 7, 20], [5, 0, 9]])
"""Tokens of three sequences on up to three ranks, [sequences, ranks]: some ranks hold none of some."""


def check(name: str, actual: Tensor, expected: Tensor) -> None:
    error = float((actual - expected).detach().abs().max()) if actual.numel() else 0.0
    size = float(expected.detach().abs().max()) if expected.numel() else 1.0
    if not error <= 1e-5 * max(size, 1e-3):
        sys.exit(f"rank {dist.get_rank()}, {name}: error {error:.2e} of {size:.2e}")


def local_segments(lengths: Tensor, mode: str) -> Segments:
    """The segments of tokens that lie one sequence after another, for some lengths."""
    cu = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    return Segments.packed(cu, causal=mode == "causal")


def compare(model: nn.Module, mode: str, group: Any, ranks: int, state: State | None) -> None:
    rank = dist.get_rank(group)
    lengths = LENGTHS[:, :ranks]
    whole = local_segments(lengths.sum(1), mode)
    torch.manual_seed(1)
    x, weight, pull = torch.randn(whole.total, 12), torch.randn(whole.total, 12), torch.randn(3, 24)
    ends = lengths.flatten().cumsum(0)
    mine = torch.cat(
        [torch.arange(ends[i] - lengths.flatten()[i], ends[i]) for i in range(rank, lengths.numel(), ranks)]
    )

    alone = copy.deepcopy(model)
    leaf = x.clone().requires_grad_()
    options = {"return_state": True} if isinstance(model, PoM) else {}
    expected = alone(leaf, whole, state=state, **options)
    expected_y = expected[0] if options else expected
    loss = (expected_y * weight).sum()
    if options:
        loss = loss + (expected[1].sum * pull).sum()
    loss.backward()

    model = copy.deepcopy(model)
    spreading = spread(model, group)
    part = x[mine].requires_grad_()
    result = spreading(part, local_segments(lengths[:, rank], mode), state=state, **options)
    y = result[0] if options else result
    check(f"{mode} output", y, expected_y[mine])
    loss = (y * weight[mine]).sum()
    if options:
        check(f"{mode} state", result[1].total, expected[1].total)
        if not result[1].count.equal(expected[1].count):
            sys.exit(f"{mode} count {result[1].count} is not {expected[1].count}")
        loss = loss + (result[1].sum * pull).sum() / ranks
    loss.backward()
    sum_gradients(model, group)
    check(f"{mode} gradient of the tokens", part.grad, leaf.grad[mine])
    for (name, weights), twin in zip(model.named_parameters(), alone.parameters(), strict=True):
        check(f"{mode} gradient of {name}", weights.grad, twin.grad)


def run_all(group: Any, ranks: int) -> None:
    torch.manual_seed(0)
    pom = PoM(12, degree=3, bias=True)
    encoder = Encoder(12, 2, {"name": "pom", "gate_heads": 4}, mlp_ratio=2.0)
    before = State(torch.randn(3, pom.width), torch.tensor([4, 0, 7]))
    for mode in ("full", "causal"):
        compare(pom, mode, group, ranks, None)
        compare(pom, mode, group, ranks, before)
        compare(encoder, mode, group, ranks, None)
    far = SpreadPoM(pom, group)
    lone = far.observe(torch.randn(1, 2, 12))
    if int(lone.count) != 2 * ranks:
        sys.exit(f"observed {int(lone.count)} tokens of {2 * ranks}")


def main() -> None:
    rank, world, meeting = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    pair = dist.new_group([0, 1])
    if rank < 2:
        run_all(pair, 2)
    run_all(None, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
