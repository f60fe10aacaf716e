"""The published module: its state dicts load, its formula is reproduced, its faults are not.

Every test states the formula anew; nothing is compared with the published code itself.
"""

import pytest
import torch
from torch import Tensor

from geomix import PoM, Segments
from geomix.errors import UnsupportedError
from geomix.mixers.rotary import conjugate_product, rotate


def published_state(dim: int, degree: int, width: int, gates: int, groups: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    shared = {"po_coeff": normal(width, degree), "ag_proj.weight": normal(dim, width)}
    if groups == 1:
        return shared | {"qc_proj.weight": normal(width + gates, dim), "se_bias": normal(gates)}
    return shared | {
        "po_proj.weight": normal(width, dim // groups, 1),
        "se_proj.weight": normal(gates, dim),
        "se_proj.bias": normal(gates),
    }


def published_formula(x: Tensor, state: dict[str, Tensor], groups: int, sees: Tensor) -> Tensor:
    """hardsigmoid(x W_s + b) * mean of sum_p alpha_p h^p, then the output projection; `sees` is [N, N]."""
    coeff = state["po_coeff"]
    if groups == 1:
        z = x @ state["qc_proj.weight"][: len(coeff)].T
        s = x @ state["qc_proj.weight"][len(coeff) :].T + state["se_bias"]
    else:
        z = torch.nn.functional.conv1d(x.transpose(1, 2), state["po_proj.weight"], groups=groups).transpose(
            1, 2
        )
        s = x @ state["se_proj.weight"].T + state["se_proj.bias"]
    h = torch.nn.functional.leaky_relu(z, 0.01).clamp(-0.1, 6)
    phi = sum(coeff[:, p] * h ** (p + 1) for p in range(coeff.shape[1]))
    mean = sees.double() @ phi / sees.sum(1, keepdim=True)
    gate = torch.nn.functional.hardsigmoid(s).repeat_interleave(len(coeff) // s.shape[-1], -1)
    return (gate * mean) @ state["ag_proj.weight"].T


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("n_sel_heads", [1, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_state_dicts_of_the_published_module_give_its_outputs(
    groups: int, n_sel_heads: int, causal: bool
) -> None:
    """Grouped modules went wrong on the GPU when published (fault 1): the formula is what counts."""
    pom = PoM.official(8, degree=3, expand=2, n_groups=groups, n_sel_heads=n_sel_heads).double()
    state = published_state(8, 3, 16, 16 if n_sel_heads == 1 else n_sel_heads, groups)
    pom.load_official(state)
    x = torch.randn(2, 11, 8, dtype=torch.float64)
    sees = torch.ones(11, 11).tril() if causal else torch.ones(11, 11)
    expected = published_formula(x, state, groups, sees)
    torch.testing.assert_close(pom(x, Segments.dense(2, 11, causal=causal)), expected, rtol=0, atol=1e-12)


def test_the_published_start_is_kept() -> None:
    coeff = PoM.official(8).coeff
    assert float(coeff.detach().abs().max()) <= 1.0001e-3


def compom_state(dim: int, degree: int, width: int, gates: int, groups: int, bias: bool) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    kernel = (1,) if groups > 1 else ()
    state = {
        "po_proj.weight": normal(width, dim // groups, *kernel),
        "po_coeff": normal(width, degree),
        "se_proj.weight": normal(gates, dim),
        "ag_proj.weight": normal(dim, width),
    }
    return state | ({"se_proj.bias": normal(gates), "ag_proj.bias": normal(dim)} if bias else {})


@pytest.mark.parametrize(("groups", "gates", "bias"), [(1, 16, True), (1, 1, False), (4, 4, False)])
def test_state_dicts_of_compom_give_its_outputs(groups: int, gates: int, bias: bool) -> None:
    """No bounds on the activation, a sigmoid for a gate: values far beyond 6 tell the two forms apart."""
    pom = PoM.compom(8, degree=3, n_groups=groups, n_sel_heads=gates, bias=bias).double()
    state = compom_state(8, 3, 16, gates, groups, bias)
    pom.load_official(state)
    x = 5 * torch.randn(2, 11, 8, dtype=torch.float64)
    w_h = torch.block_diag(*state["po_proj.weight"].flatten(1).chunk(groups))
    h = torch.nn.functional.leaky_relu(x @ w_h.T, 0.01)
    phi = sum(state["po_coeff"][:, p] * h ** (p + 1) for p in range(3))
    gate = torch.sigmoid(x @ state["se_proj.weight"].T + state.get("se_proj.bias", 0))
    mixed = gate.repeat_interleave(16 // gates, -1) * phi.mean(1, keepdim=True)
    expected = mixed @ state["ag_proj.weight"].T + state.get("ag_proj.bias", 0)
    assert h.max() > 6
    torch.testing.assert_close(pom(x), expected, rtol=1e-12, atol=1e-12)


def test_a_file_of_the_other_form_is_refused() -> None:
    today, compom = published_state(8, 2, 16, 16, 1), compom_state(8, 2, 16, 16, 1, bias=False)
    with pytest.raises(UnsupportedError, match="build it by PoM.compom"):
        PoM.official(8).load_official(compom)
    with pytest.raises(UnsupportedError, match="build it by PoM.official"):
        PoM.compom(8, n_sel_heads=16).load_official(today)
    with pytest.raises(UnsupportedError, match="build it by PoM.official"):
        PoM(8).load_official(today)
    with pytest.raises(UnsupportedError, match="a degree up to 4"):
        PoM.compom(8, degree=5).load_official(compom_state(8, 5, 16, 1, 1, bias=False))


def test_a_foreign_state_dict_is_refused() -> None:
    state = published_state(8, 2, 16, 16, 1)
    for extra, message in (
        ({"weight": torch.zeros(1)}, "holds 'weight'"),
        ({"se_proj.bias": torch.zeros(16)}, "holds 'se_proj.bias'"),
        ({"freqs_cos": torch.zeros(4096, 8)}, "PoMRoPE"),
        ({"row_sin": torch.zeros(64, 4)}, "PoMRoPE"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            PoM.official(8).load_official(state | extra)
    grouped = published_state(8, 2, 16, 16, 2) | {"po_proj.bias": torch.ones(16)}
    with pytest.raises(UnsupportedError, match="holds 'po_proj.bias': this mixer has no bias there"):
        PoM.official(8, n_groups=2).load_official(grouped)
    for name in state:
        with pytest.raises(UnsupportedError, match=f"has no '{name}'|holds 'se_bias'"):
            PoM.official(8).load_official({key: value for key, value in state.items() if key != name})
    with pytest.raises(UnsupportedError, match="has no 'po_proj.weight'"):
        PoM.official(8).load_official({})
    with pytest.raises(UnsupportedError, match="coeff has shape \\[16, 2\\], this mixer needs \\[24, 2\\]"):
        PoM.official(8, expand=3).load_official(published_state(8, 2, 16, 16, 1))


def test_fault_1_features_of_any_stride() -> None:
    pom = PoM.official(8, n_groups=4).double()
    x = torch.randn(2, 8, 9, dtype=torch.float64).transpose(1, 2)
    torch.testing.assert_close(pom(x), pom(x.contiguous()), rtol=0, atol=1e-13)


def test_fault_2_a_prompt_counts_all_its_tokens() -> None:
    pom, x = PoM.official(8).double(), torch.randn(1, 12, 8, dtype=torch.float64)
    whole = pom(x, Segments.dense(1, 12, causal=True))
    _, state = pom(x[:, :11], Segments.dense(1, 11, causal=True), return_state=True)
    last, state = pom.step(x[:, 11], state)
    torch.testing.assert_close(last, whole[:, 11], rtol=0, atol=1e-12)
    assert state.count.tolist() == [12]


def test_fault_4_a_long_causal_sum_keeps_its_precision() -> None:
    """One running fp32 sum loses 3e-5 at 131,072 tokens; chunks and a tree do not."""
    torch.manual_seed(0)
    pom, x = PoM(2, expand=1), torch.randn(1, 131_072, 2) + 2
    segments = Segments.dense(1, 131_072, causal=True)
    with torch.no_grad():
        ours, truth = pom(x, segments), pom.double()(x.double(), segments)
    assert float((ours - truth).norm() / truth.norm()) < 1e-6


def test_fault_5_a_bf16_module_decodes_ten_thousand_tokens() -> None:
    torch.manual_seed(0)
    pom = PoM(2, expand=1).bfloat16()
    x = torch.randn(10_000, 1, 2).bfloat16()
    state = pom.observe(x[:1, 0])
    with torch.no_grad():
        for token in x[1:]:
            _, state = pom.step(token, state)
        truth = pom.observe(x[:, 0])
    assert float((state.total - truth.total).norm() / truth.total.norm()) < 1e-5


def test_fault_7_a_row_with_nothing_to_see_is_zero() -> None:
    pom = PoM.official(8)
    y = pom(torch.randn(2, 3, 8), Segments.from_mask(torch.tensor([[False] * 3, [True] * 3])))
    assert (y[0] == 0).all() and y.isfinite().all()


def test_fault_10_rotary_positions_are_relative() -> None:
    """An elementwise product of rotated gate and mean moves as much as the signal; complex pairs do not."""
    random = torch.Generator().manual_seed(0)
    gate, mean = (torch.randn(20, 16, generator=random, dtype=torch.float64) for _ in range(2))
    place = torch.arange(20)
    near = conjugate_product(rotate(gate, place), rotate(mean, place - 3))
    far = conjugate_product(rotate(gate, place + 1_000_000), rotate(mean, place + 1_000_000 - 3))
    torch.testing.assert_close(far, near, rtol=0, atol=1e-9)
    elementwise = [rotate(gate, place + shift) * rotate(mean, place - 3 + shift) for shift in (0, 4)]
    assert float((elementwise[0] - elementwise[1]).abs().max()) > 0.5


def test_fault_12_the_slope_at_zero_is_the_leak() -> None:
    pom = PoM(1, expand=1, degree=1).double()
    x = torch.zeros(1, 1, 1, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        for weight, value in zip(pom.parameters(), (1.0, 1.0, 0.0, 0.0, 1.0), strict=True):
            weight.fill_(value)
    pom(x).sum().backward()
    assert x.grad is not None and x.grad.item() == pytest.approx(0.5 * 0.01)
