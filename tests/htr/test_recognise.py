import logging

import numpy as np
import pytest
import torch

from geomix.checkpoint import Card
from geomix.errors import CheckpointError, InputError
from htr.charset import Charset
from htr.model.ctc import Symbol
from htr.model.network import build_model
from htr.predict.lines import _transcription, transcribe_lines
from htr.synthetic import draw_line

CHARSET = Charset(" abcdefg\u0301")
SHAPE = {
    "classes": len(CHARSET),
    "height": 32,
    "stem": {"channels": [4, 4, 6, 6], "blocks": [0, 0, 0, 0]},
    "dim": 8,
    "depth": 1,
    "mixer": {"name": "pom"},
    "local": 3,
}


def reader(**changes):
    torch.manual_seed(5)
    model = build_model(SHAPE | changes).eval()
    model.head.weight.data *= 8  # some characters, not one long run
    card = Card(domain="htr", name="t", model=SHAPE, charset=CHARSET.characters, inputs={"height": 32})
    object.__setattr__(model, "card", card)
    return model


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return [draw_line(text, rng, size) for text, size in (("un", 30), ("un deux trois", 44), ("à", 20))]


@pytest.mark.parametrize("context", ["line", "page"])
def test_case_06_each_image_has_its_result_whatever_the_others_are(images, context):
    model = reader(context=context)
    empty = np.zeros((0, 10), np.uint8)
    blank = np.full((40, 200), 240, np.uint8)
    results = transcribe_lines(model, [empty, images[0], blank, empty, images[1]])
    assert len(results) == 5
    assert [results[0], results[3]] == [results[0]] * 2
    assert results[0].text == ""
    assert results[0].confidence == 1.0
    assert transcribe_lines(model, []) == []


def test_lines_read_the_same_alone_and_together(images):
    model = reader()
    together = transcribe_lines(model, images)
    for image, result in zip(images, together, strict=True):
        [alone] = transcribe_lines(model, [image])
        assert alone.text == result.text
        assert alone.confidence == pytest.approx(result.confidence, abs=1e-4)
    assert any(result.text for result in together)
    small = transcribe_lines(model, images, columns=10)
    assert [result.text for result in small] == [result.text for result in together]


def test_case_29_places_of_characters_rise_and_stay_on_the_image(images):
    for result, image in zip(transcribe_lines(reader(), images), images, strict=True):
        edges = [edge for char in result.chars for edge in (char.start_px, char.end_px)]
        assert edges == sorted(edges)
        assert all(0 <= edge <= image.shape[1] for edge in edges)
        assert "".join(char.char for char in result.chars) == result.text


def test_case_29_a_place_is_scaled_back_to_the_image_and_shared_halfway():
    symbols = [Symbol(2, 1, 3, 1, 0.9), Symbol(3, 5, 6, 5, 0.8)]
    result = _transcription(symbols, CHARSET, scale=2.0, width=1000)
    assert [(c.char, c.start_px, c.end_px) for c in result.chars] == [("a", 8.0, 32.0), ("b", 32.0, 48.0)]
    narrow = _transcription(symbols, CHARSET, scale=2.0, width=40)
    assert narrow.chars[-1].end_px == 40


def test_spaces_are_single_and_inside_and_accents_join_their_letter():
    numbers = [1, 2, 1, 1, 6, 9, 1]  # " a  é "
    symbols = [Symbol(n, i, i + 1, i, 0.5 + 0.01 * i) for i, n in enumerate(numbers)]
    result = _transcription(symbols, CHARSET, 1.0, 100)
    assert result.text == "a é"
    assert len(result.chars) == 3
    assert result.chars[2].confidence == pytest.approx(0.54)


def test_case_31_a_page_given_as_a_line_is_warned_of(caplog):
    with caplog.at_level(logging.WARNING):
        transcribe_lines(reader(), [np.full((60, 100), 240, np.uint8), np.full((200, 3000), 240, np.uint8)])
        assert not caplog.records
        transcribe_lines(reader(), [np.full((900, 700), 240, np.uint8)])
    assert "looks like a page" in caplog.text


def test_what_a_model_cannot_serve_is_said(images):
    with pytest.raises(CheckpointError, match="no card"):
        transcribe_lines(build_model(SHAPE), images)
    model = reader()
    object.__setattr__(model, "card", model.card.model_copy(update={"charset": None}))
    with pytest.raises(InputError, match="no charset"):
        transcribe_lines(model, images)
    with pytest.raises(InputError, match="1 or more"):
        transcribe_lines(reader(), images, beam=0)
    with pytest.raises(InputError, match="grey uint8"):
        transcribe_lines(reader(), [images[0].astype(np.float32)])
