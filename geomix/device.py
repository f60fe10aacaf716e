"""Which device does the work."""

import torch

from geomix.errors import InputError


def choose_device(name: str = "auto") -> torch.device:
    """Turn `auto`, `cpu`, `cuda` or `cuda:1` into a device; `auto` takes CUDA where it works.

    Raises:
        InputError: if the name is unknown or the device is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not (kind == "cuda" and index.isdigit())):
        raise InputError(f"device {name!r} is unknown; choose auto, cpu, cuda or cuda:N")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {name!r} is not there; {why_no_cuda()}, so choose auto or cpu")
    return torch.device(name)


def why_no_cuda() -> str:
    """Say in a few words what stands between torch and a CUDA device, or how many there are."""
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} is a build without CUDA"
    if torch.cuda.device_count() == 0:
        return "torch sees no CUDA device"
    return f"torch sees {torch.cuda.device_count()} CUDA device(s)"
