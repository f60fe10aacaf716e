from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from geomix.errors import InputError, MissingFileError
from htr.data.inputs import Sample
from htr.data.pages import page_samples, true_pages
from htr.io.pages import write
from htr.task.scoring import TextScore, evaluate_lines, evaluate_pages
from tests.htr.making import column, page_of, reader_of, said


def save(folder, name="p", texts=None):
    """A page and its truth in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    image, truth = page_of(column(60, 540, 60, 9))
    lines = tuple(replace(line, text=f"text {n}") for n, line in enumerate(truth.lines))
    if texts is not None:
        lines = tuple(replace(line, text=text) for line, text in zip(truth.lines, texts, strict=True))
    Image.fromarray(image).save(folder / f"{name}.png")
    write(replace(truth, lines=lines, source=f"{name}.png"), folder / f"{name}.xml", "page")
    return lines


def reading(texts):
    return reader_of(*texts)


@pytest.mark.parametrize("given_lines", [False, True])
def test_a_page_read_without_errors_scores_0(tmp_path, given_lines):
    lines = save(tmp_path)
    reader = reading([line.text for line in lines])
    figures = evaluate_pages(true_pages([tmp_path]), reader, given_lines=given_lines)
    assert figures["cer"] == figures["wer"] == figures["cer_matched"] == 0.0
    assert (figures["lines"], figures["f1_lines"], figures["pages"]) == (9, 1.0, 1)
    assert figures["by_page"]["p.png"]["lines"] == 9


def test_wrong_characters_are_counted(tmp_path):
    lines = save(tmp_path)
    reader = reading([line.text.replace("x", "y") for line in lines])
    figures = evaluate_pages(true_pages([tmp_path]), reader)
    assert figures["cer_matched"] == pytest.approx(9 / 54)
    assert figures["cer"] == pytest.approx(9 / (54 + 8))


def test_struck_marks_and_unicode_forms_do_not_count(tmp_path):
    lines = save(tmp_path, texts=[">cafe\u0301<", "><", "a  b", *["x"] * 6])
    del lines
    reader = reading(["caf\u00e9", "", "a b", *["x"] * 6])
    assert evaluate_pages(true_pages([tmp_path]), reader)["cer"] == 0.0


def test_places_alone_need_no_reader(tmp_path):
    save(tmp_path)
    figures = evaluate_pages(true_pages([tmp_path]), None)
    assert set(figures) == {
        *("pages", "lines", "lines_found", "recall_lines", "precision_lines", "f1_lines", "by_page")
    }


def samples(*entries):
    blank = np.full((20, 80), 255, np.uint8)
    return [
        Sample(f"{n}", page, source, "val", text, blank) for n, (source, page, text) in enumerate(entries)
    ]


def test_lines_are_read_a_page_at_a_time_and_scored_by_set():
    calls = []

    def reader(images):
        calls.append(len(images))
        return [said("ab", 80) for _ in images]

    lines = samples(("s", "p1", "ab"), ("s", "p2", "ax"), ("s", "p1", "ab"), ("t", "p1", "ab"))
    figures = evaluate_lines(lines, reader, lambda sample: "new" if sample.page == "p2" else None)
    assert calls == [2, 1, 1]
    assert figures["cer"] == pytest.approx(1 / 8)
    assert {name: score["lines"] for name, score in figures["by_set"].items()} == {"s": 3, "t": 1, "new": 1}
    with pytest.raises(InputError, match="no lines of this split"):
        evaluate_lines([], reader)


def test_pages_become_line_samples_with_their_split(tmp_path):
    save(tmp_path / "train", "a")
    save(tmp_path / "val", "b")
    save(tmp_path / "more", "c", texts=["", *["x"] * 8])
    found = page_samples([tmp_path])
    assert len(found) == 26
    assert {sample.page.rpartition("/")[2]: sample.split for sample in found} == {
        "a.png": "train",
        "b.png": "val",
        "c.png": "train",
    }
    assert {sample.image.shape[0] for sample in found} == {64}
    assert {sample.source for sample in found} == {"train", "val", "more"}


def test_what_holds_no_pages_is_named(tmp_path):
    with pytest.raises(InputError, match="holds no page image"):
        true_pages([tmp_path])
    with pytest.raises(MissingFileError, match="no such file"):
        true_pages([tmp_path / "none"])
    Image.new("L", (9, 9)).save(tmp_path / "alone.png")
    with pytest.raises(MissingFileError, match=r"alone\.png: has no truth"):
        true_pages([tmp_path / "alone.png"])


def test_lines_from_right_to_left_are_compared_as_they_are_seen():
    line = Sample("a", "p", "set", "val", "\u05d0\u05d1 12", np.full((20, 60), 255, np.uint8))
    assert evaluate_lines([line], reading(["12 \u05d1\u05d0"]))["cer"] == 0.0


def test_a_convention_of_the_transcriber_counts_in_the_strict_rate_alone():
    score = TextScore()
    score.add("M^r l’abbé x", "Mr l'abbé x")
    scores = score.scores()
    assert scores["cer"] == pytest.approx(2 / 12)
    assert scores["cer_normalised"] == 0
