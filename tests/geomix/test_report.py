import json

from geomix.report import flat, json_text, table


def test_json_never_holds_what_parsers_refuse():
    text = json_text({"a": float("nan"), "b": [1.5, float("inf")], "c": {"d": (None, "é", 1, True)}})
    assert json.loads(text) == {"a": None, "b": [1.5, None], "c": {"d": [None, "é", 1, True]}}
    assert "NaN" not in text


def test_a_table_is_aligned():
    text = table(("case", "ms"), [("full", 12.3456), ("causal attention", None)])
    assert text.splitlines() == [
        "case                 ms",
        "full              12.35",
        "causal attention      -",
    ]


def test_a_table_may_be_empty():
    assert table(("case", "ms"), []) == "case  ms"


def test_flat_names_figures_by_their_path():
    assert flat({"oa": 0.5, "month": {"05": 0.1, "all": [1, 2]}, "iou": [1]}) == [
        ("oa", 0.5),
        ("month.05", 0.1),
    ]
