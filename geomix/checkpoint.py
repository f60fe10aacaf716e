"""Model files: one .safetensors file that holds the weights and a card saying what they are.

The card is JSON under the metadata key `geomix`: how to build the model, its whole preprocessing, its
classes or characters, the data it learned from, its measured quality and its limits. Nothing is pickled,
so a model file from a stranger cannot run code.
"""

import json
import platform
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

import geomix
from geomix.config import Config, hint, parse_config
from geomix.domains import installed_domains, room
from geomix.errors import CheckpointError, ConfigError, MissingFileError
from geomix.files import new_file

if TYPE_CHECKING:
    import torch
    from torch import nn

FORMAT = 1
_KEY = "geomix"


class ClassInfo(Config):
    """One class that a model can assign."""

    id: int = Field(ge=0)
    """The value written to maps and clouds."""
    name: str
    color: str = Field(pattern="^#[0-9a-f]{6}$")
    """`#rrggbb`, lower case."""

    @property
    def rgb(self) -> tuple[int, int, int]:
        """Red, green and blue, 0 to 255."""
        return int(self.color[1:3], 16), int(self.color[3:5], 16), int(self.color[5:7], 16)


class Source(Config):
    """One data set that the weights or the reported numbers come from."""

    source: str
    licence: str
    split: Any = None
    """How the data are divided, in a form that `evaluate` of the domain can repeat."""


class Card(Config):
    """The description inside a model file."""

    format: int = FORMAT
    """Version of this layout."""
    domain: str
    name: str
    model: dict[str, Any]
    """The model configuration, as the domain's `build_model` takes it."""
    classes: tuple[ClassInfo, ...] | None = None
    charset: Annotated[tuple[str, ...], BeforeValidator(tuple)] | None = None
    """The characters of a text model, in the order of its outputs, without the blank."""
    inputs: dict[str, Any] = Field(default_factory=dict)
    """The whole preprocessing: bands, scale, level, voxel size, line height and the like."""
    data: tuple[Source, ...] = ()
    metrics: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Split -> metric -> value, with the keys that `evaluate --json` prints."""
    limits: dict[str, Any] = Field(default_factory=dict)
    """Sensor, season, region, language and the like; predictions warn outside them."""
    versions: dict[str, str] = Field(default_factory=dict)


def save_model(model: "nn.Module", card: Card, path: str | Path, overwrite: bool = False) -> None:
    """Write the weights of `model` and its card to one file; the versions are filled in here.

    Raises:
        OutputExistsError: if the file exists and `overwrite` is false.
        CheckpointError: if the name does not end in .safetensors or a weight is not finite.
    """
    import torch
    from safetensors.torch import save

    if Path(path).suffix != ".safetensors":
        raise CheckpointError(f"{path}: the name of a model file must end in .safetensors")
    # Copies, because the file format refuses tensors that share memory, as tied weights do.
    weights = {
        name: value.detach().to("cpu", copy=True).contiguous() for name, value in model.state_dict().items()
    }
    for name, value in weights.items():
        if not torch.isfinite(value).all():
            raise CheckpointError(f"{path}: not written, weight {name!r} is not finite")
    versions = {"geomix": geomix.__version__, "torch": torch.__version__, "python": platform.python_version()}
    text = card.model_copy(update={"versions": versions}).model_dump_json()
    with new_file(path, overwrite) as temporary:
        # Not save_file: it gives read permission to the owner alone.
        temporary.write_bytes(save(weights, metadata={"format": "pt", _KEY: text}))


def read_card(path: str | Path) -> Card:
    """Read the card of a model file without its weights.

    Raises:
        MissingFileError: if the file is not there.
        CheckpointError: if it is not a model file of geomix, or of a newer layout.
    """
    metadata = _metadata(Path(path))
    if _KEY not in metadata:
        raise CheckpointError(
            f"{path}: is a .safetensors file without a card, so not made by geomix; "
            f"published checkpoints are converted by `geomix DOMAIN import FILE`"
        )
    try:
        values = json.loads(metadata[_KEY])
    except json.JSONDecodeError:
        values = None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: its card is damaged; get the file again")
    number = values.get("format")
    if isinstance(number, int) and number > FORMAT:
        raise CheckpointError(
            f"{path}: was written by a newer geomix (layout {number}, this one reads {FORMAT}); update geomix"
        )
    try:
        return parse_config(Card, values, f"{path}: card")
    except ConfigError as error:
        raise CheckpointError(str(error)) from None


def load_model(
    name_or_file: str | Path, device: "str | torch.device" = "cpu", domain: str | None = None
) -> "nn.Module":
    """Load a model by the name of a bundled one or from a file, ready to predict.

    Args:
        name_or_file: as `geomix info` lists it, or the path of a .safetensors file.
        device: where the weights go.
        domain: the domain that the caller needs; a model of another domain is an error.

    Returns:
        The model in eval mode; `model.card` says what it is.

    Raises:
        MissingFileError: if there is no such name or file.
        CheckpointError: if the file is not a model file, or its weights do not fit its configuration.
    """
    from safetensors.torch import load_file

    path = find_model(name_or_file, domain)
    card = read_card(path)
    if domain is not None and card.domain != domain:
        raise CheckpointError(f"{path}: is a model for {card.domain}, here one for {domain} is needed")
    model: nn.Module = room(card.domain, "model").build_model(card.model)
    weights = load_file(path)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise CheckpointError(f"{path}: its weights do not fit its configuration: {reason}") from None
    give_card(model, card)
    return model.to(device).eval()


def give_card(model: "nn.Module", card: Card) -> None:
    """Attach a card for `card_of`, past `nn.Module`: it is neither a weight nor a buffer."""
    object.__setattr__(model, "card", card)


def card_of(model: "nn.Module") -> Card:
    """The card of a model that `load_model` returned.

    Raises:
        CheckpointError: if the model does not come from a model file.
    """
    card = model.__dict__.get("card")
    if not isinstance(card, Card):
        raise CheckpointError("this model has no card; load it with load_model, or set one before use")
    return card


def bundled_models(domain: str | None = None) -> list[tuple[str, Path]]:
    """Name and file of each model that comes with geomix."""
    return [
        (file.stem, file)
        for owner, folder in installed_domains()
        if domain in (None, owner)
        for file in sorted((folder / "weights").glob("*.safetensors"))
    ]


def kept_model(name_or_file: str | Path, device: "str | torch.device", domain: str) -> "nn.Module":
    """Load a model once per process, for work on many inputs; a changed file is read again."""
    file = find_model(name_or_file, domain)
    return _kept_model(file, file.stat().st_mtime_ns, str(device), domain)


@lru_cache(maxsize=1)
def _kept_model(file: Path, stamp: int, device: str, domain: str) -> "nn.Module":
    return load_model(file, device, domain)


def find_model(name_or_file: str | Path, domain: str | None = None) -> Path:
    """The file of a model given by name or by path.

    Raises:
        MissingFileError: if there is no such name or file.
    """
    path = Path(name_or_file)
    if path.is_file():
        return path
    bundled = dict(bundled_models(domain))
    if str(path) in bundled:
        return bundled[str(path)]
    if path.is_dir():
        files = sorted(file.name for file in path.glob("*.safetensors"))
        inside = f"it holds {', '.join(files)}" if files else "it holds no .safetensors file"
        raise MissingFileError(f"{path}: is a folder, not a model file; {inside}")
    if path.suffix == ".safetensors" or len(path.parts) > 1:
        raise MissingFileError(f"{path}: there is no such model file")
    for other, folder in installed_domains():
        if (folder / "weights" / f"{path}.safetensors").is_file():
            raise MissingFileError(f"the bundled model {str(path)!r} is one for {other}, not for {domain}")
    raise MissingFileError(f"there is no bundled model {str(path)!r}{hint(str(path), bundled)}")


def _metadata(path: Path) -> Mapping[str, str]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise MissingFileError(f"{path}: there is no such model file")
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError) as error:
        if _is_zip(path):
            raise CheckpointError(
                f"{path}: is a PyTorch checkpoint, not a .safetensors model file; "
                f"published checkpoints are converted by `geomix DOMAIN import FILE`"
            ) from None
        raise CheckpointError(f"{path}: is damaged or not a .safetensors file ({error})") from None


def _is_zip(path: Path) -> bool:
    """Whether the file is what `torch.save` writes."""
    with path.open("rb") as file:
        return file.read(2) == b"PK"
