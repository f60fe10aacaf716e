"""What several test rooms need."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def shared_data(relative: str) -> Path:
    """The path of real data outside the repository; skips the test where it is absent."""
    folder = Path(os.environ.get("GEOMIX_SHARED_DATA", ROOT.parent / "shared" / "data"))
    path = folder / relative
    if not path.exists():
        pytest.skip(f"needs {relative} from the shared data ({folder}); set GEOMIX_SHARED_DATA to its folder")
    return path
