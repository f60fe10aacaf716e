"""The model that ships: it is small, says where it comes from, and reads hands that it never saw."""

from geomix.checkpoint import bundled_models, load_model
from htr.data.tars import read_tar
from htr.predict.pages import default_model, model_reader
from htr.task.scoring import evaluate_lines
from tests.helpers import shared_data


def test_the_default_model_is_small_and_says_where_it_comes_from():
    file = dict(bundled_models("htr"))[default_model()]
    assert file.stat().st_size < 16 * 2**20
    card = load_model(default_model(), domain="htr").card
    assert card.limits["language"] == "French"
    licences = {source.split["set"]: source.licence for source in card.data}
    assert licences.pop("fonts") == "OFL-1.1, Apache-2.0"
    assert set(licences.values()) == {"CC-BY-4.0"}
    assert all("https://" in source.source for source in card.data)
    assert {"select", "val"} <= set(card.metrics)


def test_it_reads_a_page_of_a_hand_that_it_never_saw():
    tar = shared_data("htr/lines") / "copiste.tar"
    lines = [line for line in read_tar(tar) if line.page.endswith("/wikitexte_0048.xml")]
    assert {line.split for line in lines} == {"val"}
    found = evaluate_lines(lines, model_reader(load_model(default_model(), domain="htr")))
    assert found["lines"] == 18
    assert found["cer"] < 0.045
