"""Names and shapes of the published Polynomial Mixer, turned into ours.

Two forms were published, which compute different functions: the module of today (clamped leaky ReLU, hard
sigmoid) and the earlier ComPoM (leaky ReLU, sigmoid). Their files tell them apart by names and shapes.

Source: the modules published with arXiv 2604.06129 (MIT licence); names from their state dicts, no code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from geomix.errors import UnsupportedError
from geomix.ops.params import MixerFunctions

if TYPE_CHECKING:
    from geomix.mixers.pom import PoM

TODAY = MixerFunctions("clamped_leaky_relu", "hardsigmoid", "mean")
COMPOM = MixerFunctions("leaky_relu", "sigmoid", "mean")
_BUILDERS = {TODAY: "PoM.official", COMPOM: "PoM.compom"}
_SHARED = {"po_coeff": "coeff", "ag_proj.weight": "w_o", "ag_proj.bias": "b_o"}
_APART = {"po_proj.weight": "w_h", "se_proj.weight": "w_s", "se_proj.bias": "b_s"} | _SHARED
_ROPE = {"freqs_cos", "freqs_sin", "row_cos", "row_sin", "col_cos", "col_sin"}
_HIGHEST_COMPOM = 4
"""Above this degree the published ComPoM computes the powers from 0 on, which ours does not."""


def convert_state_dict(published: Mapping[str, Tensor], pom: PoM) -> dict[str, Tensor]:
    """Map a published state dict to that of `pom`.

    Plain modules fuse W_h and W_s in `qc_proj`; grouped ones and ComPoM keep `po_proj` (a 1 x 1 convolution
    or a linear map) and `se_proj`.

    Raises:
        UnsupportedError: if a name is unknown or missing, a shape does not fit, or `pom` does not compute the
            form of the file.
    """
    ours = _plain(published, pom.width) if "qc_proj.weight" in published else _apart(published)
    _check_form(published, pom)
    target = pom.state_dict()
    if ("b_o" in ours) != ("b_o" in target):
        raise UnsupportedError("one of the two mixers has an output bias and the other has none")
    for name, value in ours.items():
        if value.shape != target[name].shape:
            raise UnsupportedError(
                f"the published {name} has shape {list(value.shape)}, "
                f"this mixer needs {list(target[name].shape)}"
            )
    return ours


def _plain(published: Mapping[str, Tensor], width: int) -> dict[str, Tensor]:
    found = _renamed(published, {"qc_proj.weight": "fused", "se_bias": "b_s"} | _SHARED)
    fused = found.pop("fused")
    return found | {"w_h": fused[:width], "w_s": fused[width:]}


def _apart(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = _renamed(published, _APART)
    found["w_h"] = found["w_h"].flatten(1)
    return {"b_s": torch.zeros(len(found["w_s"])).to(found["w_s"])} | found


def _renamed(published: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Our names of all tensors; none is left out."""
    rotary = sorted(_ROPE & {*published})
    if rotary:
        raise UnsupportedError(
            f"it holds {rotary[0]!r}, so it is a PoMRoPE: geomix has no mixer with its rotation"
        )
    unknown = sorted({*published} - {*names})
    if unknown:
        reason = ": this mixer has no bias there" if unknown[0] == "po_proj.bias" else ""
        raise UnsupportedError(
            f"not a state dict of the published mixer: it holds {unknown[0]!r}{reason}; "
            f"known are {', '.join(names)}"
        )
    missing = [name for name in names if name not in published and not name.endswith("bias")]
    missing += ["se_bias"] if "se_bias" in names and "se_bias" not in published else []
    if missing:
        raise UnsupportedError(f"not a state dict of the published mixer: it has no {missing[0]!r}")
    return {names[name]: value for name, value in published.items()}


def _check_form(published: Mapping[str, Tensor], pom: PoM) -> None:
    """Make sure that `pom` computes what the published module did."""
    is_today = "qc_proj.weight" in published or (
        published["po_proj.weight"].ndim == 3 and "se_proj.bias" in published
    )
    form = TODAY if is_today else COMPOM
    if pom.functions != form or pom.rotary:
        raise UnsupportedError(
            f"the file computes {', '.join(form)} and this mixer {', '.join(pom.functions)}; "
            f"build it by {_BUILDERS[form]}"
        )
    if form is COMPOM and pom.coeff.shape[1] > _HIGHEST_COMPOM:
        raise UnsupportedError(
            f"only a published ComPoM of a degree up to {_HIGHEST_COMPOM} can be loaded, this is "
            f"{pom.coeff.shape[1]}: its powers start from 0"
        )
