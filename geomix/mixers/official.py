"""Names and shapes of the published Polynomial Mixer, turned into ours.

Source: the module published with arXiv 2604.06129 (MIT licence); names from its state dicts, no code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from geomix.errors import UnsupportedError

if TYPE_CHECKING:
    from geomix.mixers.pom import PoM


def convert_state_dict(published: Mapping[str, Tensor], pom: PoM) -> dict[str, Tensor]:
    """Map a published state dict to that of `pom`.

    Plain modules fuse W_h and W_s in `qc_proj`; grouped ones keep `po_proj` (a 1 x 1 convolution or a linear
    map) and `se_proj`.

    Raises:
        UnsupportedError: if names or shapes do not fit the module.
    """
    width = pom.width
    try:
        if "qc_proj.weight" in published:
            fused = published["qc_proj.weight"]
            w_h, w_s, b_s = fused[:width], fused[width:], published["se_bias"]
        else:
            w_h, w_s = published["po_proj.weight"].flatten(1), published["se_proj.weight"]
            b_s = published.get("se_proj.bias", torch.zeros(w_s.shape[0]))
        ours = {
            "w_h": w_h,
            "coeff": published["po_coeff"],
            "w_s": w_s,
            "b_s": b_s,
            "w_o": published["ag_proj.weight"],
        }
    except KeyError as error:
        raise UnsupportedError(
            f"not a state dict of the published mixer: it has no {error}, only {', '.join(sorted(published))}"
        ) from None
    if "ag_proj.bias" in published:
        ours["b_o"] = published["ag_proj.bias"]
    target = pom.state_dict()
    if ours.keys() != target.keys():
        raise UnsupportedError("one of the two mixers has an output bias and the other has none")
    for name, value in ours.items():
        if value.shape != target[name].shape:
            raise UnsupportedError(
                f"the published {name} has shape {list(value.shape)}, "
                f"this mixer needs {list(target[name].shape)}"
            )
    return ours
