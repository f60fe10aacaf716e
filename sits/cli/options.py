"""Options that several verbs of this domain share."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from sits.predict import MapPaths

log = logging.getLogger(__name__)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Outputs:
    """What is written beside the map."""

    preview: Path | None = None
    """Also draw the map with its legend, as PNG."""
    quicklook: Annotated[Path | None, Parameter(show=False)] = None
    """The old name of `preview`, for one more release."""
    proba: Path | None = None
    """Also write the probability of each class, per cent, one band per class."""
    entropy: Path | None = None
    """Also write how undecided the model is, per cent."""
    count: Path | None = None
    """Also write how many dates show each pixel."""
    stac: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Also write a STAC item beside the map."""

    def __bool__(self) -> bool:
        return self != Outputs()

    def beside(self, output: Path) -> "MapPaths":
        """The paths of all results, the map among them."""
        from sits.predict import MapPaths

        if self.quicklook is not None:
            log.warning("--quicklook is now --preview; the old name goes with the next release")
        preview = self.preview or self.quicklook
        return MapPaths(output, self.proba, self.entropy, self.count, preview, self.stac)
