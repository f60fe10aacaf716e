import io
import logging
import tarfile

import cv2
import numpy as np
import pytest

from geomix.errors import FormatError, InputError, MissingFileError
from htr.data.inputs import MAX_WIDTH, Sample, prepare, ready
from htr.data.sources import divide_lines, new_hands, selection_pages, writer
from htr.data.tars import read_tar
from tests.helpers import shared_data


def sample(page="p", split="train", source="copiste", text="abc", width=40, number=0):
    return Sample(f"{page}_{number}", page, source, split, text, np.full((48, width), 200, np.uint8))


def tar_of(path, index, images):
    with tarfile.open(path, "w") as tar:
        for name, content in [("set/index.tsv", index.encode()), *images.items()]:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def webp(height=64, width=100):
    image = np.full((height, width), 230, np.uint8)
    image[20:40, 10:90:10] = 30
    return cv2.imencode(".webp", image)[1].tobytes()


HEAD = "id\tpage\twidth_at_h64\tsplit\ttext\n"


def test_paper_becomes_0_and_ink_1_whatever_the_scan():
    ink = np.zeros((64, 200), np.float32)
    ink[20:40, 20:180:16] = ink[20:40, 21:180:16] = 1
    dark, pale = (
        np.clip(paper - contrast * ink, 0, 255).astype(np.uint8)
        for paper, contrast in ((250, 240), (180, 90))
    )
    left, right = (prepare(image, {"height": 48}) for image in (dark, pale))
    assert left.shape == (48, 150)
    assert left.dtype == np.float32
    assert left.min() == 0
    assert left.max() == 1
    assert np.abs(left - right).max() < 0.05


def test_empty_paper_does_not_become_noise():
    grain = np.random.default_rng(0).normal(240, 2, (64, 300)).clip(0, 255).astype(np.uint8)
    assert prepare(grain, {"height": 48}).max() < 0.2


def test_training_and_prediction_share_one_preprocessing():
    image = cv2.imdecode(np.frombuffer(webp(), np.uint8), cv2.IMREAD_GRAYSCALE)
    [line] = ready([Sample("a", "p", "s", "train", "x", image)], {"height": 32})
    np.testing.assert_array_equal(line.image / np.float32(255), prepare(image, {"height": 32}))


def test_case_22_long_lines_keep_their_proportions_and_the_widest_say_so(caplog):
    assert prepare(np.full((64, 6400), 255, np.uint8), {"height": 32}).shape == (32, 3200)
    with caplog.at_level(logging.WARNING):
        assert prepare(np.full((4, 4000), 255, np.uint8), {"height": 48}).shape == (48, MAX_WIDTH)
    assert "Is it one line?" in caplog.text


@pytest.mark.parametrize(
    "image",
    [np.zeros((4, 4), np.float32), np.zeros((4, 4, 3), np.uint8), np.zeros((0, 4), np.uint8)],
    ids=["float", "colour", "empty"],
)
def test_what_is_no_grey_image_is_refused(image):
    with pytest.raises(InputError, match="line image"):
        prepare(image, {"height": 48})


def test_a_tar_gives_its_lines_with_clean_labels(tmp_path):
    rows = [
        'a\tx/1.xml\t100\ttrain\tle "mot >barré<',
        "b\tx/2.xml\t100\tval\t ><",
        "c\tx/2.xml\t100\tval\te\u0301té",
    ]
    index = HEAD + "\n".join(rows) + "\n"
    file = tar_of(tmp_path / "set.tar", index, {f"set/lines/{name}.webp": webp() for name in "abc"})
    lines = read_tar(file)
    assert [(line.id, line.page, line.source, line.split, line.text) for line in lines] == [
        ("a", "x/1.xml", "set", "train", 'le "mot barré'),
        ("c", "x/2.xml", "set", "val", "été"),
    ]
    assert lines[0].image.shape == (64, 100)


def test_a_tar_that_is_none_is_named(tmp_path):
    with pytest.raises(MissingFileError):
        read_tar(tmp_path / "absent.tar")
    (tmp_path / "broken.tar").write_bytes(b"nonsense" * 100)
    with pytest.raises(FormatError, match=r"broken\.tar"):
        read_tar(tmp_path / "broken.tar")
    with pytest.raises(FormatError, match="'b'.*not there"):
        read_tar(tar_of(tmp_path / "gap.tar", HEAD + "b\tp\t9\ttrain\tx\n", {}))
    with pytest.raises(FormatError, match=r"cut\.tar: a: is truncated"):
        read_tar(
            tar_of(tmp_path / "cut.tar", HEAD + "a\tp\t9\ttrain\tx\n", {"set/lines/a.webp": webp()[:40]})
        )


def test_hands_are_told_by_the_names_of_the_pages():
    names = ["alto/w_0010_1.xml", "alto/w_0010_2.xml", "alto/w_0172_double.xml", "alto/w_0010.xml", "other"]
    assert [writer(name) for name in names] == ["w_0010", "w_0010", "w_0172", "w_0010", "other"]


def test_selection_takes_whole_hands_out_of_train_alone():
    lines = [sample(f"w_{n:03d}_{part}.xml", number=n) for n in range(60) for part in (1, 2)]
    lines += [sample("w_100.xml", split="val"), sample("w_000_3.xml", split="val")]
    chosen = selection_pages(lines, share=0.1)
    splits = divide_lines(lines, chosen)
    assert len(chosen) == 12
    assert not {writer(s.page) for s in splits.train} & {writer(s.page) for s in splits.select}
    assert [s.split for s in splits.val] == ["val", "val"]
    assert len(splits.of("all")) == len(lines)
    assert chosen == selection_pages(lines[::-1], share=0.1)


def test_hands_in_two_splits_form_no_new_hands():
    lines = [sample("w_1_1.xml"), sample("w_1_2.xml", split="val"), sample("w_2.xml", split="val")]
    lines += [sample("q_1.xml", source="peraire"), sample("q_2.xml", source="peraire", split="val")]
    name = new_hands(lines)
    assert [name(line) for line in lines] == [None, None, "copiste_new_hands", None, None]


def test_real_lines_can_be_read():
    lines = read_tar(shared_data("htr/lines/celestine.tar"))
    assert len(lines) == 89
    assert {line.split for line in lines} == {"train", "val"}
    assert all(line.image.shape[0] == 64 for line in lines)


def test_a_line_from_right_to_left_is_learned_as_it_is_seen():
    line = Sample("a", "p", "set", "train", "אב 12 (ג)", np.full((20, 60), 255, np.uint8))
    assert ready([line], {"height": 32})[0].text == "(ג) 12 בא"
