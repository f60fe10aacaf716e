import io
import logging
import sys

import pytest

from geomix.progress import progress, talk


@pytest.fixture(autouse=True)
def silence_afterwards():
    yield
    talk(quiet=True)
    for name in ("geomix", "pointcloud", "sits", "htr"):
        logging.getLogger(name).handlers = []
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_items_pass_unchanged_and_stdout_stays_clean(capsys):
    talk()
    assert list(progress(iter("abc"), "Letters", total=3)) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_on_stderr(monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    talk()
    assert list(progress([1, 2], "Numbers")) == [1, 2]
    assert "Numbers" in terminal.getvalue()
    talk(quiet=True)
    terminal.truncate(0)
    assert list(progress([1, 2], "Numbers")) == [1, 2]
    assert terminal.getvalue() == ""
    assert capsys.readouterr().out == ""


def test_information_and_warnings_go_to_stderr_and_quiet_keeps_warnings(capsys):
    log = logging.getLogger("sits.predict")
    talk()
    log.info("3 dates")
    log.warning("band guessed")
    assert capsys.readouterr() == ("", "3 dates\nwarning: band guessed\n")
    talk(quiet=True)
    log.info("3 dates")
    log.warning("band guessed")
    assert capsys.readouterr() == ("", "warning: band guessed\n")
