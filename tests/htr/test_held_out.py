"""What is held out: the rule, and that the committed list is what the rule gives."""

import csv
import tarfile

import pytest

from htr.data.held_out import choose, divide, document, held_out
from htr.data.inputs import Sample
from tests.helpers import shared_data

# Sets that had a validation of their own before the list existed.
EARLIER = ("copiste", "peraire", "cremma19", "cremma20", "poilus", "celestine")


def index(collection):
    with tarfile.open(shared_data(f"htr/lines/{collection}.tar")) as tar:
        table = tar.extractfile(f"{collection}/index.tsv").read().decode().splitlines()
    return list(csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("collection", sorted(held_out().keys() - {"bronod"}))
def test_the_committed_list_is_what_the_rule_gives(collection):
    rows = index(collection)
    pages = [(row["page"], row.get("document") or document(collection, row["page"])) for row in rows]
    first = {row["page"] for row in rows if row["split"] == "val"} if collection in EARLIER else set()
    documents, chosen = choose(collection, pages, first)
    entry = held_out()[collection]
    assert (entry.documents, entry.pages) == (tuple(documents), tuple(chosen))


def test_a_document_is_held_out_whole_or_not_at_all():
    pages = [(f"{name}/{number}", name) for name in "abcdefghij" for number in range(3)]
    documents, chosen = choose("set", pages)
    assert len(documents) == 2
    assert chosen == sorted(page for page, name in pages if name in documents)


def test_few_documents_give_the_last_tenth_of_their_pages():
    pages = [(f"page {number}", "one") for number in range(1, 21)]
    assert choose("set", pages) == ([], ["page 19", "page 20"])


def test_what_earlier_models_did_not_learn_is_held_out_first():
    pages = [(f"{name}/{number}", name) for name in "abcdefghij" for number in range(2)]
    documents, _ = choose("set", pages, first={"d/0", "d/1", "g/0"})
    # Half of g was learned.
    assert "d" in documents


def test_lines_of_unlisted_collections_keep_their_split():
    entry = held_out()["tapus"]
    lines = [
        Sample("1", entry.pages[0], "tapus", "train", "a", None),
        Sample("2", "another page", "tapus", "val", "a", None),
        Sample("3", entry.pages[0], "mine", "val", "a", None),
    ]
    assert [line.split for line in divide(lines)] == ["val", "train", "val"]
