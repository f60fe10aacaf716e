"""The verb that shows how files are read."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from geomix.options import Json, Quiet
from pointcloud.cli.options import Reading
from pointcloud.io.options import ReadOptions


def info(
    *inputs: Path,
    config: Annotated[
        str | None, Parameter(help="Print the parameters of each stage of a configuration instead.")
    ] = None,
    reading: Reading = ReadOptions(),
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Show how files are read: format, points, extent, unit, reference system, fields and classes."""
    from geomix.files import expand
    from geomix.parallel.jobs import run_jobs
    from geomix.report import json_text, table
    from pointcloud.io.inspect import file_facts

    if config is not None:
        stages = _stages(config)
        print(json_text(dict(stages)) if json else table(("stage", "parameters"), stages))
        return 0
    found: list[dict[str, Any]] = []

    def work(path: Path) -> None:
        facts = file_facts(path, reading)
        found.append(facts)
        if not json:
            _print_facts(facts)

    code = run_jobs(expand(inputs), work)
    if json:
        print(json_text(found))
    return code


def _print_facts(facts: dict[str, Any]) -> None:
    from geomix.report import table

    print("\n".join(f"{key}: {_text(value)}" for key, value in facts.items() if not isinstance(value, dict)))
    fields, classes = facts["fields"], facts["classes"]
    if fields:
        print(
            table(
                ("field", "type", "from", "to"), [(name, *field.values()) for name, field in fields.items()]
            )
        )
    if classes:
        print(table(("class", "points"), list(classes.items())))


def _text(value: Any) -> str:
    return " ".join(map(_text, value)) if isinstance(value, list) else str(value)


def _stages(config: str) -> list[tuple[str, int]]:
    """Parameters of each stage of the model of a configuration, and of all together."""
    from geomix.config import load_config
    from pointcloud.model import PPoMv3, parameters_by_stage
    from pointcloud.task.experiment import PointcloudConfig

    experiment = load_config(config, "pointcloud", PointcloudConfig)
    stages = parameters_by_stage(PPoMv3(experiment.model))
    return [*stages, ("all", sum(count for _, count in stages))]
