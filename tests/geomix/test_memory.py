import subprocess
import sys

import numpy as np
import pytest

from geomix.errors import InputError
from geomix.memory import available_memory, default_budget, format_memory, parse_memory, peak_memory


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GB", 4 * 10**9),
        ("512MiB", 512 * 2**20),
        ("1.5 g", 1_500_000_000),
        ("100", 100),
        ("2TB", 2 * 10**12),
        ("7kib", 7 * 1024),
    ],
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1GB", "0GB", "4 GBit", "1e9", "4GB please"])
def test_what_is_no_size_says_how_to_write_one(text):
    with pytest.raises(InputError, match="is not a size; write it like 4GB"):
        parse_memory(text)


def test_sizes_are_written_with_their_unit():
    assert [format_memory(size) for size in (999, 1500, 2.5e9, 3e12)] == ["999 B", "1.5 kB", "2.5 GB", "3 TB"]


def test_the_default_budget_leaves_room():
    assert 0 < default_budget() < available_memory()
    assert peak_memory() > 10**7


def test_the_peak_is_that_of_this_process_and_not_of_its_parent():
    held = np.ones(60_000_000)
    code = "from geomix.memory import peak_memory; print(peak_memory())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < held.nbytes < peak_memory()
