"""Compiles the kernels as they would be launched, for a GPU that need not be there: a line of JSON each.

    python tests/geomix/kernel_compiler.py 90 [--all]

The first argument is the compute capability times ten. `--all` adds what the tests have no time for.
"""

import contextlib
import io
import json
import os
import re
import sys
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)
os.environ |= {"TRITON_ALWAYS_COMPILE": "1", "TRITON_DUMP_PTXAS_LOG": "1", "TRITON_DEFAULT_FP_FUSION": "1"}

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from geomix import Segments
from geomix.ops.kernels import op
from geomix.ops.params import MixerFunctions, MixerParams

ARCH = int(sys.argv[1])


class AbsentGPU:
    """What the compiler asks of a driver."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", ARCH, 32)


launch = JITFunction.run


def compile_only(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
    """Take the place of a launch: compile for the very arguments, and run nothing."""
    log = io.StringIO()
    with contextlib.redirect_stdout(log):
        compiled = launch(kernel, *args, grid=grid, warmup=True, **kwargs)
    used = re.search(r"Used (\d+) registers", log.getvalue())
    spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log.getvalue())
    if used and spilled:
        shown = ("BN", "BK", "W", "PARTS", "K", "CAUSAL", "num_warps", "num_stages")
        row = {"kernel": kernel.__name__, "type": str(args[0].dtype), "registers": int(used[1])}
        row |= {"spilled": int(spilled[1]) + int(spilled[2]), "shared": compiled.metadata.shared}
        print(json.dumps(row | {key: kwargs[key] for key in shown if key in kwargs}), flush=True)
    return compiled


def run(
    dim: int,
    width: int,
    heads: int,
    degree: int,
    dtype: torch.dtype,
    *,
    causal: bool = False,
    masked: bool = False,
    bias: bool = False,
    activation: str = "clamped_leaky_relu",
    gate: str = "sigmoid",
) -> None:
    """Mix and go back; a mask comes with a state, which takes the most registers."""
    valid = torch.ones(2, 1024, dtype=torch.bool)
    segments = Segments.from_mask(valid, causal=causal) if masked else Segments.dense(2, 1024, causal=causal)
    state = (torch.zeros(2, width), torch.zeros(2, dtype=torch.int64)) if masked else (None, None)

    def made(*shape: int, kind: torch.dtype = dtype) -> torch.Tensor:
        return torch.zeros(*shape, dtype=kind, requires_grad=True)

    fp32 = torch.float32
    params = MixerParams(
        made(width, dim), made(width, degree, kind=fp32), made(heads, dim), made(heads, kind=fp32),
        made(dim, width), made(dim) if bias else None,
    )  # fmt: skip
    y, total = op.mix(made(2048, dim), params, segments, MixerFunctions(activation, gate, "mean"), *state)
    (y.sum() + total.sum()).backward()


def main() -> None:
    driver.set_active(AbsentGPU())
    JITFunction.run = compile_only
    bf16, fp32 = torch.bfloat16, torch.float32
    run(256, 512, 512, 2, bf16, masked=True, causal=True)
    run(256, 512, 8, 4, bf16, bias=True)
    run(256, 512, 512, 16, bf16)
    run(256, 512, 64, 2, bf16)
    run(256, 512, 512, 2, fp32, causal=True)
    run(100, 200, 200, 3, bf16, causal=True, masked=True, bias=True)
    if "--all" not in sys.argv:
        return
    for dtype in (bf16, torch.float16, fp32):
        for causal in (False, True):
            for heads in (512, 64, 2):
                for degree in (2, 16):
                    run(256, 512, heads, degree, dtype, causal=causal, masked=True, bias=True)
            run(1024, 2048, 16, 5, dtype, causal=causal, activation="gelu", gate="hardsigmoid")
            run(64, 128, 64, 2, dtype, causal=causal)
            run(100, 200, 8, 2, dtype, causal=causal, masked=True)


if __name__ == "__main__":
    main()
