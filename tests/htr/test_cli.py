import json
import tarfile
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from geomix.checkpoint import read_card
from geomix.cli import run
from geomix.errors import InputError
from htr.cli.options import pixels
from htr.data.tars import read_tar
from htr.io.pages import read_lines, write
from htr.predict.names import jobs, outputs
from tests.htr.making import check, column, page_of, tiny_model

ROWS = column(60, 540, 60, 9)


@pytest.fixture
def folder(tmp_path):
    image, truth = page_of(ROWS)
    Image.fromarray(image).save(tmp_path / "p.png")
    write(truth, tmp_path / "p.xml", "page")
    tiny_model(tmp_path / "tiny.safetensors")
    return tmp_path


def geomix(folder, *words):
    return run(["htr", *(str(folder / word[1:]) if word.startswith("@") else word for word in words)])


def test_transcribe_writes_text_xml_json_and_a_picture(folder, capsys):
    formats = [word for kind in ("txt", "page", "alto", "json") for word in ("--format", kind)]
    assert geomix(folder, "transcribe", "@p.png", "-o", "@out", "--model", "@tiny.safetensors", *formats) == 0
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        *("p.alto.xml", "p.json", "p.page.xml", "p.preview.jpg", "p.txt")
    ]
    check("page", (folder / "out" / "p.page.xml").read_bytes())
    check("alto", (folder / "out" / "p.alto.xml").read_bytes())
    document = json.loads((folder / "out" / "p.json").read_text("utf-8"))
    text = (folder / "out" / "p.txt").read_text("utf-8")
    assert [line["text"] for line in document["lines"]] == text.splitlines()
    assert len(read_lines(folder / "out" / "p.page.xml").lines) == 9
    assert capsys.readouterr().out == ""


def test_transcribe_prints_the_text_without_a_folder(folder, capsys):
    assert geomix(folder, "transcribe", "@p.png", "--model", "@tiny.safetensors") == 0
    assert len(capsys.readouterr().out.splitlines()) == 9


def test_an_existing_result_is_not_replaced_unasked(folder, capsys):
    words = ("transcribe", "@p.png", "-o", "@out", "--model", "@tiny.safetensors", "--no-preview")
    assert geomix(folder, *words) == 0
    (folder / "out" / "p.txt").write_text("mine")
    assert geomix(folder, *words) == 1
    assert "p.txt: exists already" in capsys.readouterr().err
    assert (folder / "out" / "p.txt").read_text() == "mine"
    assert geomix(folder, *words, "--overwrite") == 0
    assert (folder / "out" / "p.txt").read_text() != "mine"


def test_the_old_name_of_the_preview_still_works_and_says_its_new_one(folder, capsys):
    assert geomix(folder, "lines", "@p.png", "-o", "@out", "--no-overlay") == 0
    assert not (folder / "out" / "p.preview.jpg").exists()
    assert "--overlay is now --preview" in capsys.readouterr().err
    assert geomix(folder, "lines", "@p.png", "-o", "@out", "--overlay", "--overwrite") == 0
    assert (folder / "out" / "p.preview.jpg").exists()


@pytest.mark.parametrize("words", [("@p.png", "--lines", "@p.xml"), ("@p.png", "--lines", "@."), ("@p.xml",)])
def test_lines_come_from_a_file_a_folder_or_the_input_itself(folder, words):
    assert geomix(folder, "lines", *words, "-o", "@out", "--no-preview") == 0
    back = read_lines(folder / "out" / "p.xml")
    assert [line.id for line in back.lines] == [f"l{n}" for n in range(9)]


def test_lines_with_their_truth_print_how_well_they_were_found(folder, capsys):
    assert geomix(folder, "lines", "@p.png", "--truth", "@p.xml", "--json") == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["f1_lines"] == figures["by_page"]["p"]["f1_lines"] == 1.0
    assert geomix(folder, "lines", "@p.png", "--truth", "@.") == 0
    assert "f1_lines" in capsys.readouterr().out


def test_lines_alone_print_how_many_there_are(folder, capsys):
    assert geomix(folder, "lines", "@p.png") == 0
    assert capsys.readouterr().out == "p\t9 lines\t1 columns\n"


def test_evaluate_scores_pages(folder, capsys):
    words = ("evaluate", "--data", "@p.png", "--model", "@tiny.safetensors", "--json")
    assert geomix(folder, *words) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"cer", "wer", "wer_punctuation", "lines", "f1_lines", "cer_matched"} <= set(found)
    assert found["cer"] is None
    assert geomix(folder, *words, "--given-lines") == 0
    assert json.loads(capsys.readouterr().out)["f1_lines"] == 1.0


def test_evaluate_refuses_to_mix_lines_and_pages(folder, capsys):
    (folder / "x.tar").write_bytes(b"")
    assert geomix(folder, "evaluate", "--data", "@p.png", "@x.tar", "--model", "@tiny.safetensors") == 1
    assert "not both" in capsys.readouterr().err


def test_a_batch_names_what_is_missing_and_goes_on(folder, capsys):
    words = ("transcribe", "@none.png", "@p.png", "-o", "@out", "--model", "@tiny.safetensors")
    assert geomix(folder, *words) == 1
    assert "none.png: no such image" in capsys.readouterr().err
    assert (folder / "out" / "p.txt").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("transcribe",), "no page is given"),
        (("transcribe", "@p.png", "@sub/p.png"), "have the same name"),
        (("transcribe", "@p.png", "@q.png", "--lines", "@p.xml"), "give a folder"),
        (("transcribe", "@p.png", "--max-pixels", "many"), "give a number of pixels"),
        (("transcribe", "@p.png", "--model", "nothing"), "no bundled model 'nothing'"),
    ],
)
def test_contradictions_are_one_line_and_exit_1(folder, capsys, words, message):
    assert geomix(folder, *words) == 1
    errors = capsys.readouterr().err.strip()
    assert message in errors
    assert errors.count("\n") == 0


def test_wrong_usage_exits_2(folder, capsys):
    assert geomix(folder, "transcribe", "@p.png", "--format", "docx") == 2
    assert geomix(folder, "read", "@p.png") == 2
    capsys.readouterr()


def test_an_xml_input_finds_the_image_that_it_names(folder, capsys):
    text = (folder / "p.xml").read_text("utf-8").replace('imageFilename=""', 'imageFilename="scan.png"')
    (folder / "q.xml").write_text(text, "utf-8")
    assert geomix(folder, "lines", "@q.xml") == 1
    assert "its image 'scan.png' is not beside it" in capsys.readouterr().err
    (folder / "p.png").rename(folder / "scan.png")
    assert geomix(folder, "lines", "@q.xml") == 0


def test_a_training_and_a_judgement_are_two_commands(folder, capsys):
    lines_tar(folder / "set.tar")
    assert geomix(folder, "train", "tiny", "--data", "@set.tar", "-o", "@run", "--device", "cpu") == 0
    file = capsys.readouterr().out.strip()
    assert file.endswith("tiny.safetensors")
    assert geomix(folder, "evaluate", "--data", "@set.tar", "--model", file, "--json") == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["lines"] == 2
    assert {"cer", "wer", "wer_punctuation", "characters", "words", "by_set"} <= set(figures)
    assert {name: figures[name] for name in ("cer", "wer", "lines")} == {
        name: read_card(file).metrics["val"][name] for name in ("cer", "wer", "lines")
    }
    assert geomix(folder, "evaluate", "--data", "@set.tar", "--model", file, "--split", "test") == 1
    assert "hold no test split" in capsys.readouterr().err


def test_a_finished_training_is_not_overwritten_but_can_go_on(folder, capsys):
    lines_tar(folder / "set.tar")
    words = ("train", "tiny", "--data", "@set.tar", "-o", "@run", "--device", "cpu")
    assert geomix(folder, *words) == 0
    assert geomix(folder, *words) == 1
    assert "holds a run already" in capsys.readouterr().err
    assert geomix(folder, *words, "--resume") == 0


def test_fine_tuning_learns_new_characters(folder, capsys):
    tar = lines_tar(folder / "set.tar")
    words = ("train", "tiny", "--data", f"@{tar.name}", "--model", "@tiny.safetensors", "-o", "@run")
    assert geomix(folder, *words, "--charset", "union") == 0
    card = read_card(capsys.readouterr().out.strip())
    assert card.charset[:4] == tuple("abc ")
    assert set("xyz") <= set(card.charset)


def lines_tar(path):
    """Two pages of lines with text, as the tars of line images are."""
    with tarfile.open(path, "w") as tar:
        rows = ["id\tpage\twidth\tsplit\ttext"]
        for number in range(6):
            image, _ = page_of([(20, 300, 44)], height=64, width=320)
            rows.append(f"l{number}\tp{number // 2}\t320\t{'val' if number > 3 else 'train'}\txyz {number}")
            add(tar, f"set/lines/l{number}.png", png(image))
        add(tar, "set/index.tsv", ("\n".join(rows) + "\n").encode())
    return path


def png(image):
    stream = BytesIO()
    Image.fromarray(image).save(stream, format="PNG")
    return stream.getvalue()


def add(tar, name, data):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, BytesIO(data))


def test_import_says_what_does_not_fit(folder, capsys):
    (folder / "chars.txt").write_text("abc", "utf-8")
    words = ("import", "@tiny.safetensors", "-o", "@new.safetensors", "--charset")
    assert geomix(folder, *words, "@none.txt") == 1
    assert "no such file with the characters" in capsys.readouterr().err
    assert geomix(folder, *words, "@chars.txt") == 1
    assert "tiny.safetensors" in capsys.readouterr().err


def test_lines_drawn_with_a_font_are_data_to_learn(folder, capsys):
    (folder / "words.txt").write_text("\ufeffun jardin\n\nla maison\n", encoding="utf-8")
    assert geomix(folder, "draw", "@words.txt", "-o", "@drawn.tar", "--count", "8") == 0
    assert {sample.text for sample in read_tar(folder / "drawn.tar")} == {"un jardin", "la maison"}
    assert geomix(folder, "draw", "@words.txt", "-o", "@drawn.tar") == 1
    assert "exists already" in capsys.readouterr().err
    assert geomix(folder, "draw", "@drawn.tar", "-o", "@again.tar", "--count", "3") == 0
    assert geomix(folder, "draw", "@words.txt", "-o", "@drawn.zip") == 1
    assert "end the name in .tar" in capsys.readouterr().err
    (folder / "latin.txt").write_bytes("été".encode("latin-1"))
    for words, message in (
        (("@latin.txt",), "not a text file in UTF-8"),
        (("@missing.txt",), "no such text file"),
        ((), "no text to write"),
    ):
        assert geomix(folder, "draw", *words, "-o", "@other.tar") == 1
        assert message in capsys.readouterr().err
    assert not (folder / "other.tar").exists()


def test_the_demo_finds_the_lines_that_it_draws(folder, capsys):
    assert geomix(folder, "demo", "-o", "@demo", "--rows", "6") == 0
    printed = capsys.readouterr().out
    assert "says nothing about" in printed
    figures = dict(line.split() for line in printed.splitlines() if line.startswith(("lines", "f1_lines")))
    assert figures["lines"] == "6"
    assert float(figures["f1_lines"]) > 0.9
    names = {path.name for path in (folder / "demo").iterdir()}
    assert {"synthetic.png", "truth.xml", "synthetic.txt", "synthetic.preview.jpg"} <= names
    assert geomix(folder, "demo", "-o", "@demo", "--rows", "6") == 0


def test_pixels_in_words():
    assert [pixels(text) for text in ("500MP", "1.5 gp", "1000")] == [500_000_000, 1_500_000_000, 1000]
    with pytest.raises(InputError):
        pixels("-3MP")


def test_files_of_the_formats(tmp_path):
    names = {kind: path.name for kind, path in outputs(tmp_path, "p", ["page", "alto", "txt"]).items()}
    assert names == {"page": "p.page.xml", "alto": "p.alto.xml", "txt": "p.txt"}
    assert outputs(tmp_path, "p", ["alto"])["alto"].name == "p.xml"
    assert np.array([job.lines is None for job in jobs([tmp_path / "a.png", tmp_path / "b.png"], None)]).all()
