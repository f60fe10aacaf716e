import csv
import io
import json

import pytest
import torch

from geomix.errors import InputError
from geomix.learn.report import Report


@pytest.fixture
def report():
    return Report(("wheat", "maize", "water"), torch.tensor([[40, 10, 0], [5, 15, 0], [0, 0, 0]]))


def test_figures_stand_under_the_names_of_the_classes(report):
    figures = report.figures()
    assert figures["oa"] == pytest.approx(55 / 70)
    assert figures["pixels"] == 70
    wheat = figures["classes"]["wheat"]
    assert wheat["precision"] == pytest.approx(40 / 45)
    assert wheat["recall"] == pytest.approx(40 / 50)
    assert wheat["iou"] == pytest.approx(40 / 55)
    assert wheat["f1"] == pytest.approx(80 / 95)
    assert (wheat["support"], wheat["predicted"]) == (50, 45)
    assert figures["confusion"]["maize"] == {"wheat": 5, "maize": 15, "water": 0}


def test_classes_with_few_references_or_none_are_told(report):
    first, second = report.warnings()
    assert "'maize' has 20 pixels only" in first
    assert "'water' does not occur" in second
    assert first in report.text()


def test_json_has_null_where_nothing_can_be_divided(report):
    assert json.loads(report.json())["classes"]["water"]["iou"] is None


def test_csv_holds_figures_and_confusion_of_each_class(report):
    rows = list(csv.DictReader(io.StringIO(report.csv())))
    assert [row["class"] for row in rows] == ["wheat", "maize", "water"]
    assert float(rows[0]["recall"]) == 0.8
    assert rows[1]["as wheat"] == "5"
    assert rows[2]["iou"] == ""


def test_names_and_matrix_must_fit():
    with pytest.raises(InputError, match="2 names"):
        Report(("a", "b"), torch.zeros(3, 3, dtype=torch.int64))
