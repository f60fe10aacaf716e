"""The command `geomix`: the verbs of the domains, and information about the installation."""

import logging
import sys
from collections.abc import Mapping, Sequence
from errno import EDQUOT, EFBIG, ENOSPC, EROFS
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, CycloptsError, Parameter

import geomix
from geomix.config import find_config, hint, list_configs
from geomix.domains import DOMAINS, room
from geomix.errors import GeomixError, InputError, MissingFileError, one_line
from geomix.options import DeviceOption, Json, Quiet
from geomix.progress import talk
from geomix.report import json_text

if TYPE_CHECKING:
    from geomix.bench import Row

log = logging.getLogger(__name__)

Seconds = Annotated[
    float, Parameter(help="Time limit per run; a rival that takes longer is shown as not run.")
]

app = App(
    name="geomix",
    help="Label whole scans, whole satellite scenes and whole handwritten pages. "
    "`geomix DOMAIN --help` lists the verbs of a domain.",
    version=geomix.__version__,
)
for domain, sentence in DOMAINS.items():
    # By path, so that the command starts without the libraries of the domains.
    app.command(f"{domain}.cli:app", name=domain, help=sentence)

config_app = App(name="config", help="The configurations that come with geomix.")
app.command(config_app)


@config_app.command(name="list")
def list_all(domain: str | None = None, /) -> None:
    """Print the names of the configurations of one domain, or of all."""
    if domain is None:
        print("\n".join(_config_names()))
    elif domain in DOMAINS:
        print("\n".join(list_configs(domain)))
    else:
        raise InputError(f"unknown domain {domain!r}{hint(domain, DOMAINS)}")


@config_app.command
def show(name: str, /) -> None:
    """Print a configuration to save and change: `geomix config show sits/tiny > mine.yaml`."""
    names = _config_names()
    fitting = [full for full in names if name in (full, full.partition("/")[2])]
    if not fitting:
        raise MissingFileError(f"there is no configuration {name!r}{hint(name, names)}")
    if len(fitting) > 1:
        raise InputError(f"{name!r} stands for several: {', '.join(fitting)}")
    domain, _, config = fitting[0].partition("/")
    print(find_config(config, domain).read_text(encoding="utf-8"), end="")


def _config_names() -> list[str]:
    return [f"{domain}/{name}" for domain in DOMAINS for name in list_configs(domain)]


@app.command
def info(*, json: Json = False) -> None:
    """Show versions, device, kernels, optional packages, and the bundled models with their limits."""
    from geomix.info import gather, text

    print(json_text(gather()) if json else text(gather()))


@app.command
def bench(
    name: str = "mixer",
    /,
    *experiments: str,
    cap: Seconds = 20.0,
    device: DeviceOption = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure the mixer or a domain (mixer, sits, pointcloud, htr), or what mixers can learn (mixers).

    `mixers` takes the names of its experiments: composition, forecast, large and recall. --device is for the
    mixer; the domains take CUDA if it works.
    """
    from geomix.bench import rows_table

    names = ("mixer", "mixers", *DOMAINS)
    if name not in names:
        raise InputError(f"there is no benchmark {name!r}{hint(name, names)}")
    if name == "mixers":
        from geomix.bench import mixers

        rows: list[Row] = mixers.run(*experiments)
    elif experiments:
        raise InputError(f"the benchmark {name!r} has no experiments, got {' '.join(experiments)}")
    elif name == "mixer":
        rows = import_module("geomix.bench.mixer").run(cap_seconds=cap, device=device)
    else:
        rows = room(name, "bench").run(cap_seconds=cap)
    print(json_text([row.as_dict() for row in rows]) if json else rows_table(rows))


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed with one line, 2 wrong usage."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    first = argv[0] if argv else "--help"
    if not first.startswith("-") and first not in app:
        print(f"error: there is no command {first!r}{hint(first, app)}", file=sys.stderr)
        return 2
    try:
        if first in DOMAINS:
            # This turns a package that took the name of a domain into one of our errors.
            room(first, "cli")
        command, bound, _ = app.parse_args(argv, exit_on_error=False, print_error=False)
        talk(quiet=_is_asked(bound.arguments, "quiet"), debug=_is_asked(bound.arguments, "debug"))
        code = command(*bound.args, **bound.kwargs)
    except CycloptsError as error:
        print(f"error: {one_line(error)} (see `geomix --help`)", file=sys.stderr)
        return 2
    except GeomixError as error:
        log.debug("traceback:", exc_info=error)
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of the output has closed it, as `head` does: no failure.
        sys.stderr.close()
        return 0
    except OSError as error:
        if error.filename is None and error.errno not in {ENOSPC, EDQUOT, EFBIG, EROFS}:
            raise
        # A full disk or a read-only folder: a traceback would explain nothing.
        place = "" if error.filename is None else f"{error.filename}: "
        print(f"error: {place}{error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return code if isinstance(code, int) else 0


def _is_asked(arguments: Mapping[str, Any], flag: str) -> bool:
    """Whether a flag is set, as an argument of its own or in an object of options."""
    return arguments.get(flag) is True or any(getattr(one, flag, None) is True for one in arguments.values())
