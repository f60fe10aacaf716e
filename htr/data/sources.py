"""Where labelled lines come from, tars or pages with PAGE or ALTO, and how they are divided by page."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from geomix.errors import MissingFileError
from htr.data.inputs import Sample
from htr.data.pages import page_samples
from htr.data.tars import read_tar

Split = Literal["train", "select", "val", "all"]


def read_labelled_lines(paths: Sequence[str | Path]) -> list[Sample]:
    """Read lines with their texts from tars, folders of tars, and folders or images of pages.

    Raises:
        MissingFileError: if a path is not there.
        FormatError: if a tar is damaged or not one of lines.
        InputError: if a folder holds neither tars nor pages with XML.
    """
    return [sample for path in map(Path, paths) for sample in _read(path)]


def _read(path: Path) -> list[Sample]:
    if not path.exists():
        raise MissingFileError(f"{path}: there is no such file or folder")
    if path.suffix == ".tar":
        return read_tar(path)
    tars = sorted(path.glob("*.tar")) if path.is_dir() else []
    return [sample for tar in tars for sample in read_tar(tar)] if tars else page_samples([path])


def writer(page: str) -> str:
    """The hand behind a page of Copiste: pages that end in _1, _2 or _double share it."""
    stem = page.rpartition("/")[2].rpartition(".")[0] or page
    head, _, tail = stem.rpartition("_")
    return head if head and tail in ("1", "2", "3", "double") else stem


def selection_pages(samples: Sequence[Sample], share: float = 0.04, seed: int = 0) -> set[str]:
    """Choose training pages that select the checkpoint instead of being learned.

    Whole hands are taken where the names of the pages tell the hand, so that no learned page shares one.

    Args:
        samples: all lines; those of other splits than train are not touched.
        share: the share of the training pages of each set, at least one page where a set has ten or more.
        seed: the same seed gives the same pages.
    """
    chosen: set[str] = set()
    for source in sorted({sample.source for sample in samples}):
        pages = sorted(
            {sample.page for sample in samples if sample.source == source and sample.split == "train"}
        )
        hands: dict[str, list[str]] = {}
        for page in pages:
            hands.setdefault(writer(page), []).append(page)
        wanted = max(1, round(share * len(pages))) if len(pages) >= 10 else 0
        order = np.random.default_rng(seed).permutation(len(hands))
        for hand in np.array(sorted(hands), dtype=object)[order]:
            if wanted <= 0:
                break
            chosen.update(hands[hand])
            wanted -= len(hands[hand])
    return chosen


def cross_split_hands(samples: Iterable[Sample]) -> set[str]:
    """The hands that have pages both in train and in val: a figure without them is the cleaner one."""
    splits: dict[str, set[str]] = {}
    for sample in samples:
        splits.setdefault(writer(sample.page), set()).add(sample.split)
    return {hand for hand, found in splits.items() if {"train", "val"} <= found}


def new_hands(samples: Sequence[Sample]) -> Callable[[Sample], str | None]:
    """Name the group of the lines whose hand has no page in another split: `<set>_new_hands`.

    Args:
        samples: all lines. Sets in which no hand crosses the splits, or whose pages do not tell the hand,
            have no such group.

    Returns:
        The name of the group of a line, or None.
    """
    sets = {sample.source for sample in samples}
    shared = {name: cross_split_hands(s for s in samples if s.source == name) for name in sets}

    def name(sample: Sample) -> str | None:
        hands = shared.get(sample.source)
        return f"{sample.source}_new_hands" if hands and writer(sample.page) not in hands else None

    return name


def take(samples: Sequence[Sample], split: Split, select: set[str]) -> list[Sample]:
    """The samples of one split, where `select` names the training pages that choose the checkpoint."""
    if split == "all":
        return list(samples)
    if split == "val":
        return [sample for sample in samples if sample.split == "val"]
    keep = split == "select"
    return [sample for sample in samples if sample.split == "train" and (sample.page in select) == keep]
