"""Options that several verbs of this domain share."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pointcloud.io.options import ReadOptions

Reading = Annotated[ReadOptions, Parameter(name="*")]
Data = Annotated[
    Path | None, Parameter(name="--data", help="Folder of the labelled data that the configuration asks for.")
]
FLAG = {"negative": "", "show_default": False}
Views = Annotated[
    bool,
    Parameter(
        name="--tta", **FLAG, help="Average over eight turned and mirrored views, in eight times the time."
    ),
]
