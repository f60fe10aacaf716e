"""Configurations: frozen, typed, filled from YAML, and strict about every key.

The files live in `configs/<domain>/<name>.yaml` of the repository and travel inside the wheel as
`geomix/configs`. An unknown key is an error that names the file, the line and the nearest key.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from geomix.errors import ConfigError, MissingFileError

Where = tuple[int | str, ...]


class Config(BaseModel):
    """A frozen set of named values; the docstring below each field states its meaning and unit."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """The same values but for some, checked again.

        `config.changed({"train.seed": 3, "model.mixer": {"name": "attention"}})`

        Args:
            changes: path of a key, with points -> its whole new value.

        Raises:
            ConfigError: if a key is unknown or a value does not fit.
        """
        values = self.model_dump()
        for path, value in changes.items():
            *sections, key = path.split(".")
            inner = values
            for section in sections:
                inner = inner.setdefault(section, {})
            inner[key] = value
        return parse_config(type(self), values, type(self).__name__)


C = TypeVar("C", bound=BaseModel)


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice most similar to `word`, or None if none is close."""
    close = get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return close[0] if close else None


def hint(word: str, choices: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the nearest choice, or all of them."""
    names = sorted(choices)
    close = nearest(word, names)
    if close is not None:
        return f"; did you mean {close!r}?"
    return f"; choose from {', '.join(names)}" if names else ""


def config_folder() -> Path:
    """The folder that holds one folder of YAML files per domain."""
    package = Path(__file__).parent
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def list_configs(domain: str) -> list[str]:
    """The names of the configurations that come with a domain."""
    return sorted(file.stem for file in (config_folder() / domain).glob("*.yaml"))


def find_config(name_or_path: str | Path, domain: str) -> Path:
    """The YAML file of a configuration given by name or by path.

    Raises:
        MissingFileError: if there is no such file or name.
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        if not path.is_file():
            raise MissingFileError(f"{path}: there is no such configuration file")
        return path
    file = config_folder() / domain / f"{path}.yaml"
    if not file.is_file():
        names = list_configs(domain)
        raise MissingFileError(f"{domain} has no configuration {str(path)!r}{hint(str(path), names)}")
    return file


def load_config(name_or_path: str | Path, domain: str, kind: type[C]) -> C:
    """Read a configuration by name (of the ones that come with `domain`) or from a YAML file.

    Raises:
        MissingFileError: if there is no such file or name.
        ConfigError: if a key is unknown, missing or doubled, or a value does not fit.
    """
    path = find_config(name_or_path, domain)
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=_Loader)
        values = _Loader.construct(root) if root is not None else {}
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: {error.problem}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not a text file in UTF-8") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: should hold keys and values, got a {type(values).__name__}")
    lines = dict(_lines(root))
    return _validate(kind, values, lambda at: f"{path}:{_line_of(at, lines)}")


def parse_config(kind: type[C], values: Mapping[str, Any], source: str) -> C:
    """Fill a configuration from values already in memory; errors name the `source`.

    Raises:
        ConfigError: if a key is unknown or missing, or a value does not fit.
    """
    return _validate(kind, values, lambda _: source)


def _validate(kind: type[C], values: Mapping[str, Any], place: Callable[[Where], str]) -> C:
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        problems = error.errors(include_url=False)
        # An unknown key first: it is often why another one is missing.
        first = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ConfigError(f"{place(first['loc'])}: {_explain(kind, first)}{more}") from None


def _explain(kind: type[BaseModel], problem: Any) -> str:
    at: Where = problem["loc"]
    key = ".".join(str(part) for part in at)
    if problem["type"] == "extra_forbidden":
        return f"unknown key {key!r}{hint(str(at[-1]), _fields(kind, at[:-1]))}"
    if problem["type"] == "missing":
        return f"key {key!r} is missing"
    message = problem["msg"].removeprefix("Value error, ")
    if not at:
        return str(message)
    return f"key {key!r}: {message[:1].lower()}{message[1:]}, got {problem['input']!r}"


def _fields(kind: type[BaseModel], at: Where) -> list[str]:
    """The keys of the model at a path inside `kind`."""
    models = [kind]
    for part in at:
        inner = [
            model.model_fields[str(part)].annotation for model in models if str(part) in model.model_fields
        ]
        # A list index or the tag of a union is a step that stays with the same models.
        models = [found for annotation in inner for found in _models(annotation)] or models
    return sorted({name for model in models for name in model.model_fields})


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


class _Loader(yaml.SafeLoader):
    """YAML as people write it: `1e-3` is a number, and a duplicate key is an error."""

    @classmethod
    def construct(cls, root: yaml.Node) -> Any:
        loader = cls("")
        try:
            return loader.construct_document(root)
        finally:
            loader.dispose()

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} is given twice", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


# YAML 1.1 requires a point in a float, so it would read 1e-3 as text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _lines(node: yaml.Node | None, at: Where = ()) -> Iterator[tuple[Where, int]]:
    """The path and the line of each key of a YAML document, counted from 1."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*at, key.value), key.start_mark.line + 1
            yield from _lines(value, (*at, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*at, index), value.start_mark.line + 1
            yield from _lines(value, (*at, index))


def _line_of(at: Where, lines: Mapping[Where, int]) -> int:
    """The line of a key, or of the nearest enclosing key that the file holds."""
    while at and at not in lines:
        at = at[:-1]
    return lines.get(at, 1)
