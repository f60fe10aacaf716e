"""Where labelled lines come from, tars or pages with PAGE or ALTO, and how they are divided by page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from pydantic import Field

from geomix.config import Config
from geomix.errors import MissingFileError
from geomix.learn.splits import Splits
from htr.charset import Charset
from htr.data.inputs import Sample
from htr.data.pages import SPLITS, TruePage, page_samples, true_pages
from htr.data.tars import read_tar


class DataConfig(Config):
    """How lines are divided and drawn for training."""

    weights: dict[str, float] = Field({})
    """How often a line of a set is seen in an epoch; 1 for sets that are not named."""
    stretch: float = Field(1.25, ge=1)
    """Largest factor by which a line becomes wider or narrower."""
    augment: bool = True
    """Whether slant, pen, tone and paper change at random."""
    page_lines: int = Field(1, ge=1)
    """Neighbouring lines that are unrolled to one page in training; 1 for single lines. Sets have no weights
    then."""
    select_share: float = Field(0.04, gt=0, lt=1)
    """Share of the training pages that choose the checkpoint and are not learned."""
    fill: float = Field(0.8, gt=0, le=1)
    """Labels that need more than this share of a line's tokens are left out: CTC cannot learn them."""
    held_out: bool = False
    """Whether `htr.data.held_out` replaces the splits of the collections that it names."""
    conventional: bool = False
    """Whether labels are mapped to `htr.data.convention` first."""
    damaged: float = Field(0, ge=0, le=1)
    """Share of the training lines that are learned once more as other tools cut and worse scans show them."""
    synthetic: int = Field(120, ge=20)
    """Lines drawn with a font where no data are given."""


@dataclass(frozen=True)
class LineSplits(Splits[Sample]):
    """Lines with their texts, divided by page."""

    learned: Sequence[Sample] = ()
    """The lines of `train` whose text fits, at the model's height and with ink high on 0."""
    charset: Charset = field(default_factory=lambda: Charset(()))
    """The characters to learn."""

    def learning(self, learned: Sequence[Sample], charset: Charset) -> LineSplits:
        """The same parts, with what is learned from `train`."""
        return replace(self, learned=learned, charset=charset)

    @property
    def lines(self) -> list[Sample]:
        """The lines of all parts."""
        return [line for part in self.parts.values() for line in part]


@dataclass(frozen=True)
class PageSplits(Splits[TruePage]):
    """Whole pages with their true lines, divided by the folders that hold them."""

    everywhere: Sequence[TruePage] = ()
    """Pages in no folder named train, val or test: they belong to every part."""

    def of(self, name: str) -> list[TruePage]:
        """The pages of a part, or of `all` parts, and those that belong to every part.

        Raises:
            InputError: if there is no such split or it is empty.
        """
        if not self.everywhere:
            return super().of(name)
        named = super().of(name) if name in self.parts or (name == "all" and self.parts) else []
        return [*self.everywhere, *named]


def divide_lines(samples: Sequence[Sample], select: set[str]) -> LineSplits:
    """Divide lines by page as their source says.

    Args:
        samples: all lines.
        select: the training pages that choose the checkpoint.
    """
    train = [line for line in samples if line.split == "train"]
    return LineSplits(
        train=[line for line in train if line.page not in select],
        val=[line for line in samples if line.split == "val"],
        test=[line for line in samples if line.split == "test"],
        select=[line for line in train if line.page in select],
    )


def divide_pages(paths: Sequence[str | Path]) -> PageSplits:
    """Find the pages with their truth, and divide them by the folders named train, val and test."""
    pages = true_pages(paths)
    named = {name: [page for page in pages if page.image.parent.name == name] for name in SPLITS}
    return PageSplits(**named, everywhere=[page for page in pages if page.image.parent.name not in SPLITS])


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
