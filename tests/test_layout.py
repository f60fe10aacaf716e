"""The plan of the house: who may import whom, which rooms there are, and what stays out."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from geomix.domains import DOMAINS
from tests.helpers import ROOT

PACKAGES = ("geomix", *DOMAINS)

# Rooms that each domain has, and their floors. A room is a module or a folder. Files import from their
# own floor or from floors below, never upwards and never in a circle. Scoring calls the very prediction that
# users call, so `task` stands above `predict`.
FLOORS = {
    "io": 0,
    "data": 1,
    "synthetic": 1,
    "model": 2,
    "predict": 3,
    "task": 4,
    "bench": 5,
    "study": 5,
    "cli": 5,
}
# Rooms that only one domain can have.
SITS = {
    "bands": 0,
    "dates": 0,
    "grid": 0,
    "radiometry": 0,
    "series": 0,
    "accuracy": 3,
    "polygons": 3,
    "state": 3,
}
POINTCLOUD = {
    "cloud": 0,
    "serialization": 0,
    "sparse": 0,
    "voxels": 0,
}
HTR = {
    "bidi": 0,
    "charset": 0,
    "page": 0,
    "layout": 1,
}
OWN_ROOMS = {"sits": SITS, "pointcloud": POINTCLOUD, "htr": HTR}
LIFTABLE = (
    "lazy",
    "segments",
    "offsets",
    "ops",
    "mixers",
    "encoder",
    "position",
    "bench.mixer",
    "bench.__init__",
)
TOP_LEVEL = {
    *(
        ".ci",
        ".gitignore",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "Makefile",
        "README.md",
        "SECURITY.md",
    ),
    *(
        "configs",
        "docs",
        "examples",
        "integrations",
        "pyproject.toml",
        "requirements.lock",
        "setup.py",
        "tests",
    ),
    *PACKAGES,
}


def files(package):
    return sorted((ROOT / package).rglob("*.py"))


def module(file):
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


def tracked():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [Path(name) for name in listed.stdout.split("\0") if name]


@cache
def imports(file, at_start_only=False):
    """The modules that a file imports; also `a.b` of `from a import b`, which may be a module."""
    return tuple(_imports(file, at_start_only))


def _imports(file, at_start_only):
    for node in nodes(ast.parse(file.read_text(encoding="utf-8")), at_start_only):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module(file).split(".")[: -node.level] if node.level else []
            base = ".".join([*package, *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{name.name}" for name in node.names)


def nodes(tree, at_start_only):
    for node in ast.iter_child_nodes(tree):
        is_typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if at_start_only and (is_typing or isinstance(node, ast.FunctionDef)):
            continue
        yield node
        yield from nodes(node, at_start_only)


def room_of(name):
    """`sits.io.geotiff` lies in the room `io`."""
    return name.split(".")[1] if "." in name else "__init__"


def rooms(domain):
    return {room_of(module(file)) for file in files(domain)} - {"__init__"}


@pytest.mark.parametrize("file", files("geomix"), ids=module)
def test_the_core_knows_no_domain(file):
    assert not {name.partition(".")[0] for name in imports(file)} & {*DOMAINS}


@pytest.mark.parametrize("file", [f for domain in DOMAINS for f in files(domain)], ids=module)
def test_imports_of_a_domain_point_down(file):
    domain = file.relative_to(ROOT).parts[0]
    floors = FLOORS | OWN_ROOMS[domain]
    own = room_of(module(file))
    for name in imports(file):
        package = name.partition(".")[0]
        assert package not in {*DOMAINS} - {domain}, f"{module(file)} imports a sibling: {name}"
        other = room_of(name)
        if package == domain and other in floors and own != "__init__":
            assert floors[own] >= floors[other], f"{module(file)} imports {name}, which lies on a floor above"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_rooms_of_a_package_form_no_circle(package):
    graph = {room: set() for room in rooms(package)}
    for file in files(package):
        own = room_of(module(file))
        found = {room_of(name) for name in imports(file) if name.partition(".")[0] == package}
        if own in graph:
            graph[own] |= found & {*graph} - {own}
    TopologicalSorter(graph).prepare()


def test_the_modules_of_the_house_import_each_other_in_no_circle():
    names = {module(file).removesuffix(".__init__"): file for package in PACKAGES for file in files(package)}
    graph = {}
    for own, file in names.items():
        found = {name for name in imports(file, at_start_only=True) if name in names} - {own}
        # `from a.b import c` needs the package a.b only where c is no module of its own.
        parts = {name.rpartition(".")[0] for name in found}
        graph[own] = {name for name in found if name not in parts}
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_room_has_a_floor(domain):
    assert rooms(domain) - {*FLOORS, *OWN_ROOMS[domain]} == set()
    assert {*OWN_ROOMS[domain]} - rooms(domain) == set()


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_domain_has_the_same_rooms(domain):
    if "cli" not in rooms(domain):
        pytest.skip(f"{domain} is being built: it has no command line yet")
    assert {*FLOORS} - rooms(domain) == set()


@pytest.mark.parametrize("name", LIFTABLE)
def test_the_mixer_can_be_lifted_out(name):
    """It needs torch alone; triton when a kernel runs, and what writes a table when one is written."""
    path = ROOT / "geomix" / name.replace(".", "/")
    for file in files(f"geomix/{name}") if path.is_dir() else [path.with_suffix(".py")]:
        if not file.exists():
            pytest.skip(f"{name} is not there yet")
        for imported in imports(file, at_start_only=True):
            top = imported.partition(".")[0]
            allowed = {"torch", "geomix", *sys.stdlib_module_names} | (
                {"triton"} if "kernels" in file.parts else set()
            )
            assert top in allowed, f"{module(file)} imports {imported}"
            if top == "geomix" and room_of(imported) != "__init__":
                assert room_of(imported) in {*LIFTABLE, "bench", "errors"}, (
                    f"{module(file)} imports {imported}"
                )


def test_the_mixer_runs_with_torch_alone():
    code = (
        "import sys\n"
        "absent = ('triton', 'numpy', 'pydantic', 'yaml', 'rich', 'psutil', 'lightning')\n"
        "sys.modules.update(dict.fromkeys(absent))\n"
        "import torch\n"
        "from geomix import Encoder, Segments\n"
        "from geomix.bench import Row, rows_table\n"
        "encoder = Encoder(8, 1, {'name': 'pom'})\n"
        "encoder(torch.zeros(1, 3, 8), Segments.dense(1, 3)).sum().backward()\n"
        "print(rows_table([Row('one step', 'time', 1.0, 'ms')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "one step" in done.stdout, done.stderr


def test_starting_a_domain_s_command_line_imports_nothing_heavy():
    code = (
        "import sys, importlib\n"
        "for name in sys.argv[1:]: importlib.import_module(name + '.cli')\n"
        "sys.exit(' '.join({'torch', 'lightning', 'rasterio', 'xarray', 'cv2', 'laspy'} & set(sys.modules)))"
    )
    ready = [domain for domain in DOMAINS if "cli" in rooms(domain)]
    done = subprocess.run([sys.executable, "-c", code, *ready], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_every_library_that_is_imported_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    declared = {canonicalize_name(re.match(r"[\w.-]+", line)[0]) for line in lines}
    # What is optional may be missing here, so its distribution is not known from its import name.
    owners = packages_distributions() | {"spconv": ["spconv-cu120"], "torch_scatter": ["torch-scatter"]}
    for file in chain.from_iterable(map(files, PACKAGES)):
        for top in {name.partition(".")[0] for name in imports(file)} - {*PACKAGES, *sys.stdlib_module_names}:
            found = {canonicalize_name(name) for name in owners.get(top, [top])}
            assert found & declared, f"{module(file)} imports {top}, which pyproject.toml does not name"


def test_the_import_names_are_ours_alone():
    owners = packages_distributions()
    assert {name: set(owners.get(name, [])) for name in PACKAGES} == {name: {"geomix"} for name in PACKAGES}


def test_the_top_level_is_fixed():
    assert {path.parts[0] for path in tracked()} - TOP_LEVEL == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_assert_stands_between_the_user_and_a_message(package):
    for file in files(package):
        asserts = [
            n.lineno for n in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(n, ast.Assert)
        ]
        assert asserts == [], f"{module(file)}: raise an error that says what is wrong"


def test_files_stay_short_enough_to_read():
    lengths = {
        str(path): (ROOT / path).read_text("utf-8").count("\n") for path in tracked() if path.suffix == ".py"
    }
    assert {path: length for path, length in lengths.items() if length > 450} == {}


def test_only_weights_are_large():
    large = [
        p
        for p in tracked()
        if (ROOT / p).stat().st_size > 300_000 and p.suffix not in (".safetensors", ".lm")
    ]
    assert large == []


def test_tests_mirror_the_packages():
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders <= {*PACKAGES, "long"}
    assert list((ROOT / "tests").rglob("__init__.py")) == []
