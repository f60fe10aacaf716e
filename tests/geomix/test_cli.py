import json
import subprocess
import sys
from errno import ENOSPC

import pytest

from geomix import cli, config
from geomix.cli import run
from geomix.errors import FormatError, InputError
from geomix.options import TrainOptions


@pytest.fixture
def verb(monkeypatch):
    """Give the command a verb `try` that does what the test says."""

    def add(action):
        def attempt(word: str = "", *, quiet: bool = False) -> int | None:
            return action(word)

        cli.app.command(attempt, name="try")

    yield add
    del cli.app["try"]


def test_a_verb_that_is_done_ends_with_0(verb, capsys):
    verb(print)
    assert run(["try", "words"]) == 0
    assert capsys.readouterr() == ("words\n", "")


def test_an_error_of_ours_is_one_line_and_ends_with_1(verb, capsys):
    def fail(_):
        raise FormatError("a.las: is truncated\n  at byte 7")

    verb(fail)
    assert run(["try"]) == 1
    assert capsys.readouterr() == ("", "error: a.las: is truncated at byte 7\n")


def test_a_verb_may_end_with_1_itself(verb):
    verb(lambda _: 1)
    assert run(["try"]) == 1


def test_an_unexpected_error_shows_its_traceback(verb):
    verb(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(["try"])


def test_what_the_system_refuses_is_one_line(verb, tmp_path, capsys):
    def refused(word):
        (tmp_path / word).mkdir()
        (tmp_path / word).write_text("")

    verb(refused)
    assert run(["try", "folder"]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path / 'folder'}: Is a directory\n"


def test_a_full_disk_is_one_line(verb, capsys):
    def fill(_):
        raise OSError(ENOSPC, "No space left on device")

    verb(fill)
    assert run(["try"]) == 1
    assert capsys.readouterr().err == "error: No space left on device\n"


def test_stopping_ends_with_130(verb, capsys):
    def stop(_):
        raise KeyboardInterrupt

    verb(stop)
    assert run(["try"]) == 130
    assert capsys.readouterr().err == "stopped\n"


@pytest.mark.parametrize(
    "argv", [["tri"], ["config", "list", "--domian", "sits"], ["config", "show"]], ids=" ".join
)
def test_wrong_usage_is_one_line_and_ends_with_2(argv, capsys):
    assert run(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_main_exits_with_the_code(verb):
    verb(lambda _: 1)
    with pytest.raises(SystemExit) as caught:
        cli.main(["try"])
    assert caught.value.code == 1


def test_quiet_and_debug_are_understood_for_every_verb(verb, monkeypatch):
    heard = []
    monkeypatch.setattr(cli, "talk", lambda quiet, debug: heard.append((quiet, debug)))
    verb(lambda _: None)
    run(["try", "--quiet"])
    run(["try"])

    @cli.app.command(name="try-with-options")
    def with_options(*, options: TrainOptions = TrainOptions()) -> None:
        """Take the options of a domain's verb as one object."""

    run(["try-with-options", "--debug"])
    del cli.app["try-with-options"]
    assert heard == [(True, False), (False, False), (False, True)]


def test_debug_prints_the_traceback_beside_the_line(verb, capsys, monkeypatch):
    def wrong(_):
        raise InputError("no good")

    monkeypatch.setattr(cli, "_is_asked", lambda arguments, flag: flag == "debug")
    verb(wrong)
    assert run(["try"]) == 1
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert err.endswith("error: no good\n")
    cli.talk()


@pytest.fixture
def configs(monkeypatch, tmp_path):
    for name in ("sits/tiny", "sits/large", "htr/tiny"):
        file = tmp_path / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"name: {name}\n")
    monkeypatch.setattr(config, "config_folder", lambda: tmp_path)


def test_configurations_are_listed_and_shown(configs, capsys):
    assert run(["config", "list"]) == 0
    assert capsys.readouterr().out.split() == ["sits/large", "sits/tiny", "htr/tiny"]
    assert run(["config", "list", "sits"]) == 0
    assert capsys.readouterr().out.split() == ["large", "tiny"]
    assert run(["config", "show", "htr/tiny"]) == 0
    assert run(["config", "show", "large"]) == 0
    assert capsys.readouterr().out == "name: htr/tiny\nname: sits/large\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["config", "list", "sit"], "unknown domain 'sit'; did you mean 'sits'?"),
        (["config", "show", "sits/tini"], "there is no configuration 'sits/tini'; did you mean 'sits/tiny'?"),
        (
            ["config", "show", "tini"],
            "there is no configuration 'tini'; choose from htr/tiny, sits/large, sits/tiny",
        ),
        (["config", "show", "tiny"], "'tiny' stands for several: sits/tiny, htr/tiny"),
        (["bench", "mixr"], "there is no benchmark 'mixr'; did you mean 'mixer'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_name_that_is_unknown_or_unclear_is_an_error(configs, argv, message, capsys):
    assert run(argv) == 1
    assert capsys.readouterr().err == f"error: {message}\n"


def test_bench_prints_rows(monkeypatch, capsys):
    from types import SimpleNamespace

    from geomix.bench import Row

    caps = []
    rows = lambda cap_seconds: caps.append(cap_seconds) or [Row("tokens", "time", 1.0, "ms")]  # noqa: E731
    monkeypatch.setattr(cli, "room", lambda *_: SimpleNamespace(run=rows))
    assert run(["bench", "sits", "--json", "--cap", "3"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["case"] == "tokens"
    assert run(["bench", "sits"]) == 0
    assert "tokens  time" in capsys.readouterr().out
    assert caps == [3, 20]


def test_help_starts_without_the_heavy_libraries():
    code = (
        "import sys; from geomix.cli import run; code = run(['--help']);"
        "heavy = {'torch', 'lightning', 'numpy', 'rasterio', 'xarray', 'cv2'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in ("sits", "pointcloud", "htr", "info", "config", "bench"))


def test_python_m_geomix_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "geomix", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.count(".") == 2
