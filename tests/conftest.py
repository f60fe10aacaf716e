"""What holds for all tests.

One thread a process: small tests are faster so, and results do not depend on the machine's cores.
Without a GPU the kernels run in Triton's interpreter, to be asked for before anything imports triton.
"""

import logging
import os

import pytest
import torch

from geomix.progress import PACKAGES

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def loud_logs():
    """Undo what a verb run with --quiet in an earlier test did to the loggers."""
    for name in PACKAGES:
        logger = logging.getLogger(name)
        logger.handlers = []
        logger.setLevel(logging.INFO)
