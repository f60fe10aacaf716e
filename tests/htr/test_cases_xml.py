"""Cases of PAGE and ALTO files that other tools mishandle; the list of all cases is in test_cases_layout."""

import logging
from dataclasses import replace

import numpy as np
import pytest
from lxml import etree

from htr.io.alto import alto_xml
from htr.io.pages import read_lines
from htr.io.pagexml import page_xml
from htr.page import Line, Page, parse_points
from tests.helpers import shared_data
from tests.htr.making import check, rectangle

PAGE = (
    '<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"><Metadata><Creator>c</Creator>'
    "<Created>2020-01-01T00:00:00</Created><LastChange>2020-01-01T00:00:00</LastChange></Metadata>"
    '<Page imageFilename="i.jpg" imageWidth="200" imageHeight="100">{}</Page></PcGts>'
)
ALTO = (
    '<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description>'
    "<MeasurementUnit>pixel</MeasurementUnit></Description><Layout>"
    '<Page ID="p" PHYSICAL_IMG_NR="1" WIDTH="200" HEIGHT="100"><PrintSpace>{}</PrintSpace>'
    "</Page></Layout></alto>"
)


def region(*lines, attributes=""):
    coords = '<Coords points="0,0 199,0 199,99 0,99"/>'
    return f'<TextRegion id="r" {attributes}>{coords}{"".join(lines)}</TextRegion>'


def read(tmp_path, text):
    (tmp_path / "x.xml").write_text(text, encoding="utf-8")
    return read_lines(tmp_path / "x.xml")


def test_case_04_lines_and_regions_without_coords_get_them_from_what_is_there(tmp_path, caplog):
    lines = [
        f'<TextLine id="l{n}"><Baseline points="10,{y} 150,{y}"/></TextLine>' for n, y in enumerate((30, 70))
    ]
    with caplog.at_level(logging.INFO):
        page = read(tmp_path, PAGE.format(f'<TextRegion id="r"><Coords/>{"".join(lines)}</TextRegion>'))
    assert [line.bounds() for line in page.lines] == [(10, 0, 150, 40), (10, 40, 150, 80)]
    assert page.regions[0].polygon.tolist() == rectangle(10, 0, 150, 80).tolist()
    assert "2 lines have no polygon" in caplog.text
    assert all(line.is_band for line in page.lines)


def test_case_04_a_line_without_baseline_gets_one_from_its_polygon(tmp_path):
    page = read(
        tmp_path,
        PAGE.format(region('<TextLine id="l"><Coords points="10,10 150,10 150,50 10,50"/></TextLine>')),
    )
    assert len(page.lines[0].baseline) >= 2
    assert page.lines[0].baseline[:, 1] == pytest.approx(40)


@pytest.mark.parametrize(
    "name",
    ["page_missing_coords_ro.xml", "page_missing_coords_transkribus.xml", "alto_missing_coords_ro.xml"],
)
def test_case_04_real_files_without_coords(name):
    page = read_lines(shared_data(f"htr/xml/{name}"))
    assert len(page.lines) == 4
    assert all(len(line.polygon) >= 3 and len(line.baseline) >= 2 for line in page.lines)


@pytest.mark.parametrize(
    "places",
    [
        '<Coords points="10,10 10,10"/><Baseline points="10,10"/>',
        '<Coords points="10,10 11,10 10,10"/><Baseline points="10,10 10,10"/>',
        "<Coords/>",
        '<Coords points=""/><Baseline points=""/>',
    ],
)
def test_case_05_a_degenerate_line_keeps_an_empty_slot(tmp_path, caplog, places):
    good = '<TextLine id="good"><Coords points="10,10 150,10 150,50 10,50"/></TextLine>'
    with caplog.at_level(logging.WARNING):
        page = read(tmp_path, PAGE.format(region(f'<TextLine id="bad">{places}</TextLine>', good)))
    assert [line.id for line in page.lines] == ["bad", "good"]
    assert page.lines[0].error is not None
    assert page.lines[1].error is None
    assert "line bad covers no part of the page" in caplog.text
    check("page", page_xml(page))
    check("page", page_xml(replace(page, origin=None)))


def test_case_07_points_in_both_spellings_of_alto(tmp_path):
    line = '<TextLine ID="l" BASELINE="{}"><Shape><Polygon POINTS="{}"/></Shape></TextLine>'
    line = f'<TextBlock ID="b">{line}</TextBlock>'
    pages = [
        read(tmp_path, ALTO.format(line.format(base, shape)))
        for base, shape in (
            ("10,40 150,40", "10,10 150,10 150,50 10,50"),
            ("10 40 150 40", "10 10 150 10 150 50 10 50"),
            ("10.0,40.0 150.0,40.0", "10.0 10.0 150.0 10.0 150.0 50.0 10.0 50.0"),
        )
    ]
    for page in pages:
        assert page.lines[0].baseline.tolist() == [[10, 40], [150, 40]]
        assert page.lines[0].polygon.tolist() == rectangle(10, 10, 150, 50).tolist()
    assert parse_points("-1.5e1,2").tolist() == [[-15, 2]]


def test_case_08_places_off_the_page_are_read_with_a_warning_and_written_on_it(tmp_path, caplog):
    places = '<Coords points="-5,10 250,10 250,50 -5,50"/><Baseline points="-5,40 250,40"/>'
    line = f'<TextLine id="l">{places}</TextLine>'
    with caplog.at_level(logging.WARNING):
        page = read(tmp_path, PAGE.format(region(line)))
    assert page.lines[0].bounds() == (-5, 10, 250, 50)
    assert "1 lines reach beyond the page (l ...)" in caplog.text
    for written, kind in ((page_xml, "page"), (alto_xml, "alto")):
        check(kind, written(replace(page, origin=None)))
    again = page_xml(page)
    check("page", again)
    coords = next(etree.fromstring(again).iter("{*}TextLine")).find("{*}Coords").get("points")
    assert coords == "0,10 199,10 199,50 0,50"


def test_case_09_what_is_not_ours_survives_rewriting(tmp_path):
    foreign = region(
        '<TextLine id="l" custom="readingOrder {index:0;} abbrev {offset:3;}" '
        'production="handwritten-cursive">'
        '<Coords points="10,10 150,10 150,50 10,50"/><Baseline points="10,40 150,40"/>'
        '<TextEquiv conf="0.1" comments="by hand"><Unicode>old</Unicode></TextEquiv>'
        '<TextStyle fontSize="12"/></TextLine>',
        attributes='type="marginalia" custom="structure {type:marginalia;}" primaryLanguage="French"',
    )
    extra = '<GraphicRegion id="g"><Coords points="1,1 9,1 9,9"/></GraphicRegion>'
    page = read(tmp_path, PAGE.format(foreign + extra))
    root = etree.fromstring(
        page_xml(replace(page, lines=(replace(page.lines[0], text="new", confidence=0.7),)))
    )
    check("page", etree.tostring(root))
    line, box = next(root.iter("{*}TextLine")), next(root.iter("{*}TextRegion"))
    assert line.get("custom") == "readingOrder {index:0;} abbrev {offset:3;}"
    assert line.get("production") == "handwritten-cursive"
    assert box.get("type") == "marginalia"
    assert box.get("primaryLanguage") == "French"
    assert next(root.iter("{*}GraphicRegion")).get("id") == "g"
    assert line.find("{*}TextStyle").get("fontSize") == "12"
    equivalent = line.find("{*}TextEquiv")
    assert (equivalent.get("conf"), equivalent.get("comments")) == ("0.7000", "by hand")
    assert equivalent.find("{*}Unicode").text == "new"
    assert line.find("{*}Baseline").get("points") == "10,40 150,40"
    assert root.find("{*}Metadata/{*}Creator").text == "c"


def test_case_09_a_real_transkribus_file_keeps_its_attributes():
    page = read_lines(shared_data("htr/xml/170025120000003,0074.xml"))
    lines = tuple(replace(line, text=f"line {n}") for n, line in enumerate(page.lines))
    before, after = etree.fromstring(page.origin.xml), etree.fromstring(page_xml(replace(page, lines=lines)))
    for tag in ("TextRegion", "TextLine", "RegionRefIndexed", "Coords", "Baseline"):
        old, new = ([dict(e.attrib) for e in root.iter(f"{{*}}{tag}")] for root in (before, after))
        assert old == new, tag
    texts = {e.get("id"): e.find("{*}TextEquiv/{*}Unicode").text for e in after.iter("{*}TextLine")}
    assert texts == {line.id: line.text for line in lines}


def test_case_09_the_order_that_transkribus_writes_is_read_and_ours_is_written(tmp_path):
    lines = [
        f'<TextLine id="l{n}" custom="readingOrder {{index:{place};}}">'
        f'<Coords points="1,{n} 99,{n} 99,{n + 9}"/></TextLine>'
        for n, place in enumerate((2, 0, 1))
    ]
    page = read(tmp_path, PAGE.format(region(*lines)))
    assert [line.id for line in page.lines] == ["l1", "l2", "l0"]
    assert b"ReadingOrder" in page_xml(replace(page, origin=None))


def test_case_10_characters_that_xml_cannot_hold_do_not_break_the_file():
    line = Line(id="a b", text="x\x00\x0b\ud800y\n<&>\u200d", polygon=rectangle(1, 1, 90, 20))
    page = Page(width=100, height=50, lines=(line, replace(line, id="a b")), source="\x01.jpg")
    for written, kind in ((page_xml, "page"), (alto_xml, "alto")):
        data = written(page)
        check(kind, data)
        assert "&lt;&amp;&gt;\u200d" in data.decode()


def test_case_10_a_page_without_lines_and_lines_without_a_place_are_valid():
    for lines in ((), (Line(id="a", text="x"),), (Line(id="a", polygon=np.array([[1.0, 1.0]] * 4)),)):
        page = Page(width=100, height=50, lines=lines)
        check("page", page_xml(page))
        check("alto", alto_xml(page))
