"""`geomix htr lm train`: a text becomes a model that `--lm` takes."""

import pytest

from geomix.errors import InputError
from htr.cli.language import train
from htr.predict.lm import find_lm


def test_a_text_becomes_a_model_file(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("l’été\n" * 9, encoding="utf-8")
    train(text, output=tmp_path / "my.lm", order=3, source="here", licence="CC0")
    assert capsys.readouterr().out.strip() == str(tmp_path / "my.lm")
    lm = find_lm(tmp_path / "my.lm")
    assert lm.order == 3
    # In the convention of the models.
    assert lm.log_probability("l", "'") > lm.log_probability("l", "é")


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"end the name in \.lm"):
        train(tmp_path / "text.txt", output=tmp_path / "my.txt")
