from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from geomix.errors import FormatError, InputError, MissingFileError, OutputExistsError
from htr.io.alto import alto_xml
from htr.io.pages import read_lines, write
from htr.io.pagexml import page_xml
from htr.io.text import page_dict
from htr.io.words import words_of
from htr.io.xmlfile import Names, clean_text
from htr.page import Line, Page, Region, box_polygon
from tests.helpers import shared_data
from tests.htr.making import check, rectangle

FIXTURES = [
    "170025120000003,0074.xml",
    "alto_bsb00084914_00007.xml",
    "alto_invalid_dims.xml",
    "alto_missing_coords_ro.xml",
    "alto_reg_test.xml",
    "alto_zero_dims.xml",
    "page_cPAS-2000.xml",
    "page_explicit_ro.xml",
    "page_explicit_ro_unordered.xml",
    "page_missing_coords_ro.xml",
    "page_missing_coords_transkribus.xml",
    "page_zero_dims.xml",
    "tarima_MMSH_MS_056_0052.xml",
]


def rich_page():
    """Two columns, a line without text, confidences and character boxes, right-to-left parts."""
    boxes = np.array([[10.0 + 5 * i, 10.0, 15.0 + 5 * i, 30.0] for i in range(5)])
    lines = (
        Line(
            id="a",
            region="r1",
            text="ab cd",
            baseline=np.array([[10.0, 28.0], [60.0, 28.0]]),
            polygon=rectangle(8, 8, 62, 34),
            confidence=0.5,
            char_confidences=(0.9, 0.9, 0.9, 0.4, 0.4),
            char_boxes=boxes,
            kind="heading",
        ),
        Line(id="b", region="r1", polygon=rectangle(8, 40, 62, 60), error="no ink"),
        Line(
            id="c",
            region="r2",
            text="שלום",
            direction="rtl",
            polygon=rectangle(100, 8, 160, 34),
            baseline=np.array([[100.0, 28.0], [160.0, 28.0]]),
        ),
    )
    regions = (
        Region(id="r1", polygon=rectangle(5, 5, 70, 70), kind="main"),
        Region(id="r2", polygon=rectangle(95, 5, 170, 70), direction="rtl"),
    )
    return Page(width=200, height=100, lines=lines, regions=regions, source="p.jpg", direction="ltr")


@pytest.mark.parametrize("kind", ["page", "alto"])
def test_a_new_document_is_valid_and_reads_back(tmp_path, kind):
    page = rich_page()
    write(page, tmp_path / "p.xml", kind)
    check(kind, (tmp_path / "p.xml").read_bytes())
    back = read_lines(tmp_path / "p.xml")
    assert (back.width, back.height, back.source) == (200, 100, "p.jpg")
    assert [line.id for line in back.lines] == ["a", "b", "c"]
    assert [line.text or "" for line in back.lines] == ["ab cd", "", "שלום"]
    assert back.lines[0].polygon.tolist() == page.lines[0].polygon.tolist()
    assert back.lines[0].baseline.tolist() == page.lines[0].baseline.tolist()
    assert back.lines[0].kind == "heading"
    assert back.direction_of(back.lines[2]) == "rtl"
    assert [region.kind for region in back.regions] == ["main", None]


@pytest.mark.parametrize("name", FIXTURES)
def test_odd_files_are_read_and_become_valid_files_of_both_kinds(name):
    page = read_lines(shared_data(f"htr/xml/{name}"))
    for written, kind in ((page_xml, "page"), (alto_xml, "alto")):
        check(kind, written(replace(page, origin=None)))


@pytest.mark.parametrize("name", ["page_explicit_ro.xml", "alto_missing_coords_ro.xml"])
def test_rewriting_keeps_every_line_and_puts_the_new_texts_in(tmp_path, name):
    page = read_lines(shared_data(f"htr/xml/{name}"))
    lines = tuple(replace(line, text=f"new {i}", confidence=0.25) for i, line in enumerate(page.lines))
    write(replace(page, lines=lines), tmp_path / "p.xml", page.origin.format)
    back = read_lines(tmp_path / "p.xml")
    assert [line.text for line in back.lines] == [line.text for line in lines]
    assert [line.confidence for line in back.lines] == [0.25] * len(lines)
    assert [line.id for line in back.lines] == [line.id for line in page.lines]


def test_rewriting_without_new_texts_changes_no_text():
    page = read_lines(shared_data("htr/pages/bronod_0.xml"))
    before, after = etree.fromstring(page.origin.xml), etree.fromstring(page_xml(page))
    texts = [[e.text for e in root.iter("{*}Unicode")] for root in (before, after)]
    points = [[e.get("points") for e in root.iter("{*}Coords", "{*}Baseline")] for root in (before, after)]
    assert texts[0] == texts[1]
    assert points[0] == points[1]


def test_alto_with_one_string_a_line_keeps_that_habit():
    page = read_lines(shared_data("htr/pages/copiste_2.xml"))
    lines = tuple(replace(line, text="two words", confidence=0.5) for line in page.lines)
    root = etree.fromstring(alto_xml(replace(page, lines=lines)))
    strings = [line.findall("{*}String") for line in root.iter("{*}TextLine")]
    assert {len(found) for found in strings} == {1}
    assert {found[0].get("CONTENT") for found in strings} == {"two words"}
    assert {found[0].get("WC") for found in strings} == {"0.5000"}
    check("alto", etree.tostring(root))


def test_an_order_across_blocks_is_written_to_alto():
    page = rich_page()
    mixed = replace(page, lines=(page.lines[0], page.lines[2], page.lines[1]))
    data = alto_xml(mixed)
    check("alto", data)
    assert b"ReadingOrder" in data
    assert b"ReadingOrder" not in alto_xml(page)


def test_alto_in_millimetres_becomes_pixels(tmp_path):
    alto = (
        '<alto xmlns="http://www.loc.gov/standards/alto/ns-v2#"><Description><MeasurementUnit>mm10</MeasurementUnit>'
        '</Description><Layout><Page ID="p" WIDTH="1000" HEIGHT="2000"><PrintSpace><TextBlock ID="b">'
        '<TextLine ID="l" HPOS="100" VPOS="100" WIDTH="200" HEIGHT="50" BASELINE="140">'
        '<String CONTENT="x"/></TextLine></TextBlock></PrintSpace></Page></Layout></alto>'
    )
    (tmp_path / "a.xml").write_text(alto)
    page = read_lines(tmp_path / "a.xml", size=(2000, 4000))
    assert page.lines[0].polygon.tolist() == rectangle(200, 200, 600, 300).tolist()
    assert page.lines[0].baseline.tolist() == [[200, 280], [600, 280]]


def test_words_and_their_confidences():
    words = words_of(rich_page().lines[0])
    assert [word.text for word in words] == ["ab", "cd"]
    assert words[0].confidence == pytest.approx(0.9)
    assert words[1].confidence == pytest.approx(0.4)
    assert words[1].box == (25.0, 10.0, 35.0, 30.0)


def test_old_words_go_with_the_text_that_they_spell(tmp_path):
    page_file = tmp_path / "w.xml"
    page_file.write_text(
        '<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15">'
        '<Page imageFilename="i" imageWidth="90" imageHeight="90">'
        '<TextRegion id="r"><Coords points="0,0 9,9"/><TextLine id="l">'
        '<Coords points="1,1 60,1 60,20 1,20"/><Word id="w"><Coords points="1,1 9,9"/><TextEquiv><Unicode>old'
        "</Unicode></TextEquiv></Word></TextLine></TextRegion></Page></PcGts>"
    )
    page = read_lines(page_file)
    assert page.lines[0].text == "old"
    same = etree.fromstring(page_xml(page))
    assert len(list(same.iter("{*}Word"))) == 1
    new = etree.fromstring(page_xml(replace(page, lines=(replace(page.lines[0], text="new"),))))
    assert list(new.iter("{*}Word")) == []
    assert [e.text for e in new.iter("{*}Unicode")] == ["new"]


@pytest.mark.parametrize(
    ("content", "message"),
    [("<PcGts><Page>", "not well-formed"), ("<html/>", "root element is html"), ("", "not well-formed")],
)
def test_files_that_are_neither_are_named(tmp_path, content, message):
    (tmp_path / "x.xml").write_text(content)
    with pytest.raises(FormatError, match=message):
        read_lines(tmp_path / "x.xml")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MissingFileError, match=r"none\.xml"):
        read_lines(tmp_path / "none.xml")


def test_an_entity_is_not_expanded(tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "x.xml").write_text(
        f'<!DOCTYPE PcGts [<!ENTITY e SYSTEM "file://{tmp_path}/secret">]>'
        '<PcGts><Page imageFilename="i" imageWidth="9" imageHeight="9"><TextRegion id="r"><TextLine id="l">'
        '<Coords points="1,1 8,1 8,8"/><TextEquiv><Unicode>a&e;</Unicode></TextEquiv></TextLine></TextRegion>'
        "</Page></PcGts>"
    )
    assert "secret" not in (read_lines(tmp_path / "x.xml").lines[0].text or "")


def test_an_unknown_format_and_an_existing_file_are_refused(tmp_path):
    with pytest.raises(InputError, match="unknown format 'pdf'"):
        write(rich_page(), tmp_path / "p.pdf", "pdf")
    write(rich_page(), tmp_path / "p.txt", "txt")
    with pytest.raises(OutputExistsError):
        write(rich_page(), tmp_path / "p.txt", "txt")


def test_text_has_a_row_for_every_line(tmp_path):
    write(rich_page(), tmp_path / "p.txt", "txt")
    assert (tmp_path / "p.txt").read_text(encoding="utf-8") == "ab cd\n\nשלום\n"


def test_json_reads_back_as_lines(tmp_path):
    page = rich_page()
    write(page, tmp_path / "p.json", "json")
    back = read_lines(tmp_path / "p.json")
    assert page_dict(back)["regions"] == page_dict(page)["regions"]
    assert [line.error for line in back.lines] == [None, "no ink", None]
    assert back.lines[0].baseline.tolist() == page.lines[0].baseline.tolist()
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(FormatError, match="is not a page"):
        read_lines(tmp_path / "bad.json")


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=20))
def test_any_text_survives_both_formats(text):
    line = Line(id="a", text=" ".join(clean_text(text).split()), polygon=box_polygon(1, 1, 9, 9))
    page = Page(width=10, height=10, lines=(line,))
    for data in (page_xml(page), alto_xml(page)):
        root = etree.fromstring(data)
        found = [e.text or "" for e in root.iter("{*}Unicode")] or [
            " ".join(e.get("CONTENT") for e in root.iter("{*}String"))
        ]
        assert found == [line.text]


def test_names_are_legal_and_unique():
    names = Names()
    assert [names.take(wanted, "line") for wanted in ("a", "a", "1b", "c d", None, None)] == [
        *("a", "a_2", "_1b", "c_d", "line", "line_2")
    ]
