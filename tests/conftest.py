"""What holds for all tests.

One thread a process: small tests are faster so, and results do not depend on the machine's cores.
Without a GPU the kernels run in Triton's interpreter, to be asked for before anything imports triton.
"""

import os

import torch

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
