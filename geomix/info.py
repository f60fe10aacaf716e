"""What this installation can do: versions, devices, kernels, optional packages and bundled models.

Nothing optional is imported to find out: some of these packages need seconds, or libraries of the system.
"""

import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

import geomix
from geomix.checkpoint import bundled_models, read_card
from geomix.device import choose_device, why_no_cuda
from geomix.domains import DOMAINS, domain_folder, intruder
from geomix.errors import CheckpointError
from geomix.memory import available_memory, format_memory
from geomix.ops.kernels import why_not_here
from geomix.report import table

_OPTIONAL = {
    "triton": ("fused kernels of the mixer on CUDA", "comes with geomix on Linux"),
    "spconv": ("sparse convolutions of point clouds on CUDA", "pip install 'geomix[cuda]'"),
    "torch_scatter": ("segment sums on CUDA", "pip install 'geomix[cuda]'"),
    "open3d": ("point cloud viewer, normals", "pip install 'geomix[view]'"),
    "pypdfium2": ("pages from PDF", "pip install 'geomix[pdf]'"),
    "kraken": ("another line detector", "pip install 'geomix[kraken]'"),
}
_ON_CUDA_ALONE = ("triton", "spconv", "torch_scatter")
_DISTRIBUTIONS = {"torch_scatter": ("torch-scatter",), "spconv": ("spconv-cu126", "spconv-cu120", "spconv")}


def gather() -> dict[str, Any]:
    """All that `geomix info` prints, as plain values."""
    return {
        "versions": _versions(),
        "device": _device(),
        "packages": [_package(name) for name in _OPTIONAL],
        "domains": {name: "ready" if domain_folder(name) else str(intruder(name)) for name in DOMAINS},
        "models": [_model(name, domain) for domain in DOMAINS for name, _ in bundled_models(domain)],
    }


def text(info: dict[str, Any]) -> str:
    """The same for people."""
    parts = [", ".join(f"{name} {number}" for name, number in info["versions"].items())]
    parts.append("\n".join(f"{key}: {value}" for key, value in info["device"].items()))
    parts.append(
        table(("package", "version", "in use", "for"), [_row(package) for package in info["packages"]])
    )
    trouble = [f"{name}: {state}" for name, state in info["domains"].items() if state != "ready"]
    if trouble:
        parts.append("\n".join(trouble))
    parts.append("\n\n".join(map(_model_text, info["models"])) or "no bundled models")
    return "\n\n".join(parts)


def _versions() -> dict[str, str]:
    names = ("lightning", "rasterio", "xarray", "laspy", "opencv-python-headless")
    found = {name: number for name in names if (number := _version(name))}
    own = {"geomix": geomix.__version__, "python": platform.python_version(), "torch": torch.__version__}
    return own | found


def _device() -> dict[str, str]:
    device = choose_device("auto")
    is_cuda = device.type == "cuda"
    name = torch.cuda.get_device_name() if is_cuda else platform.processor() or platform.machine()
    return {
        "device": f"{device.type} ({name}, {torch.get_num_threads()} threads)",
        "cuda": why_no_cuda(),
        "memory": f"{format_memory(available_memory())} free",
        "kernels": f"plain torch: {reason}" if (reason := why_not_here()) else "fused Triton kernels",
    }


def _package(name: str) -> dict[str, str | None]:
    purpose, way = _OPTIONAL[name]
    number = next(filter(None, map(_version, _DISTRIBUTIONS.get(name, (name,)))), None)
    if number is None:
        state = f"not installed: {way}"
    elif name in _ON_CUDA_ALONE and not torch.cuda.is_available():
        state = f"no: {why_no_cuda()}"
    else:
        state = "yes"
    return {"name": name, "version": number, "state": state, "purpose": purpose}


def _row(package: dict[str, str | None]) -> tuple[str | None, ...]:
    return package["name"], package["version"], package["state"], package["purpose"]


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _model(name: str, domain: str) -> dict[str, Any]:
    path = dict(bundled_models(domain))[name]
    try:
        card = read_card(path)
    except CheckpointError as error:
        return {"name": name, "domain": domain, "bytes": path.stat().st_size, "error": str(error)}
    return {
        "name": name,
        "domain": domain,
        "bytes": path.stat().st_size,
        "classes": [entry.name for entry in card.classes or ()],
        "characters": len(card.charset or ()),
        "metrics": card.metrics,
        "limits": card.limits,
        "data": [source.model_dump(mode="json") for source in card.data],
    }


def _model_text(model: dict[str, Any]) -> str:
    lines = [f"{model['name']} ({model['domain']}, {format_memory(model['bytes'])})"]
    if "error" in model:
        return f"{lines[0]}\n  unusable: {model['error']}"
    if model["classes"]:
        lines.append(f"classes: {', '.join(model['classes'])}")
    if model["characters"]:
        lines.append(f"characters: {model['characters']}")
    for split, metrics in model["metrics"].items():
        figures = ", ".join(f"{key} {_short(value)}" for key, value in _figures(metrics))
        lines.append(f"{split}: {figures}")
    lines += [f"data: {source['source']} ({source['licence']})" for source in model["data"]]
    lines += [f"limit, {key}: {value}" for key, value in model["limits"].items()]
    return "\n  ".join(lines)


def _figures(metrics: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The figures of a split, and of each group within it the first one; the JSON has them all."""
    for key, value in metrics.items():
        if isinstance(value, Mapping):
            groups = ((name, group) for name, group in value.items() if isinstance(group, Mapping) and group)
            yield from (
                (f"{next(iter(group))} of {name}", next(iter(group.values()))) for name, group in groups
            )
        elif value is not None and not isinstance(value, list | tuple):
            yield key, value


def _short(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
