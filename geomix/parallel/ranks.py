"""The ranks of one training: which process this is, which samples are its own, and how all communicate.

    torchrun --nproc-per-node 2 -m geomix sits train tiny -o run

`torchrun` sets the number of processes in the environment; with one process every function here does nothing.
The batch size is that of the configuration, however many processes share it: `own` is the share of a process,
and `portion` scales its loss so that the mean over processes, which DDP takes of the gradients, is the mean
over the batch. Rank 0 writes and speaks; the others follow it.
"""

import atexit
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from geomix.errors import GeomixError, InputError, ProcessError
from geomix.progress import PACKAGES, talk

if TYPE_CHECKING:
    from torch import Tensor, nn

T = TypeVar("T")

STEP_TIMEOUT = timedelta(minutes=30)
"""How long a process waits for the others within a step."""
TALK_TIMEOUT = timedelta(days=1)
"""How long it waits while one works alone, for example while rank 0 scores; an exit is noticed at once."""

_talk: Any = None
"""The group for objects and waiting, over gloo on a GPU too; None before `join`."""


@dataclass(frozen=True)
class Processes:
    """The rank of this process among those of a training."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    """The rank among the processes on this machine."""
    local_world: int = 1
    """The number of processes on this machine."""


class Nothing:
    """The share of a process for which a batch has no sample."""

    def to(self, *_: Any, **__: Any) -> "Nothing":
        """Return itself: it is on every device."""
        return self


NOTHING = Nothing()


def here() -> Processes:
    """The rank of this process, from the environment that `torchrun` sets.

    Raises:
        InputError: if the environment names several processes, but not which one this is.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return Processes()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    found = {name: os.environ.get(name, "") for name in names}
    if not all(value.isdigit() for value in found.values()):
        said = ", ".join(f"{name}={value}" for name, value in found.items())
        raise InputError(
            f"the environment says {said}; start several processes with torchrun, or unset WORLD_SIZE"
        )
    return Processes(*(int(value) for value in found.values()))


def own(items: Sequence[T]) -> Sequence[T]:
    """The share of this process: every item goes to one process, and rank 0 has the most."""
    place = here()
    return items[place.rank :: place.world]


def join(batch_size: int, device: str = "auto") -> None:
    """Connect to the other processes, once: over NCCL on CUDA devices, else over gloo.

    Args:
        batch_size: samples per batch, which the processes share.
        device: `auto`, `cpu` or `cuda`.

    Raises:
        InputError: if there are more processes than samples in a batch or CUDA devices on the machine.
    """
    global _talk
    place = here()
    if place.world == 1 or _talk is not None:
        return
    if batch_size < place.world:
        raise InputError(
            f"a batch_size of {batch_size} is too small for {place.world} processes, which each take a share "
            f"of every batch; start at most {batch_size}, or raise batch_size"
        )
    import torch
    import torch.distributed as dist

    from geomix.device import choose_device

    cuda = choose_device(device).type == "cuda"
    if cuda and place.local_world > torch.cuda.device_count():
        raise InputError(
            f"{place.local_world} processes on this machine need one CUDA device each, but there are "
            f"{torch.cuda.device_count()}; start fewer, or choose --device cpu"
        )
    if cuda:
        torch.cuda.set_device(place.local_rank)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if cuda else "gloo", timeout=STEP_TIMEOUT)
        # Its threads must end before the interpreter, or the process aborts.
        atexit.register(dist.destroy_process_group)
    _talk = dist.new_group(backend="gloo", timeout=TALK_TIMEOUT)
    if place.rank:
        _hush()


def _hush() -> None:
    """On the command line, let only rank 0 talk."""
    if logging.getLogger("geomix").handlers:
        talk(quiet=True)
        for name in PACKAGES:
            # All ranks give the same warnings.
            logging.getLogger(name).setLevel(logging.ERROR)
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends


def gather(value: T) -> list[T]:
    """The value of each process, by rank. All must call it, and wait for each other."""
    place = here()
    if place.world == 1:
        return [value]
    import torch.distributed as dist

    values: list[Any] = [None] * place.world
    dist.all_gather_object(values, value, group=_talk)
    return values


def first(value: T) -> T:
    """The value of rank 0; all must call it."""
    return gather(value)[0]


def once(work: Callable[[], T]) -> T:
    """Let rank 0 work alone while the others wait, and give all its result."""
    place = here()
    with naming_the_rank():
        result: Any = work() if place.rank == 0 else None
        return first(result)  # type: ignore[no-any-return]


@contextmanager
def in_turn() -> Iterator[None]:
    """Let rank 0 run a block before the others, which then find what it prepared."""
    rank = here().rank
    with naming_the_rank():
        if rank:
            gather(None)
        yield
        if not rank:
            gather(None)


def total(values: "Tensor") -> "Tensor":
    """The sum of a tensor over all processes."""
    if here().world == 1:
        return values
    import torch.distributed as dist

    summed = values.clone()
    dist.all_reduce(summed)
    return summed


def portion(weight: "Tensor") -> "Tensor":
    """The factor of a loss that turns the mean over processes into the mean over the batch.

    Args:
        weight: the number that the loss of this process is a mean over, such as that of its lines; a scalar.

    Returns:
        A scalar: 1 if all processes have the same weight, 0 if the whole batch has none.
    """
    everyone = total(weight)
    return here().world * weight / everyone.clamp(min=1e-12)


def share_buffers(module: "nn.Module") -> None:
    """Copy the buffers of rank 0, such as the statistics of batch norms, to all processes."""
    if here().world == 1:
        return
    import torch.distributed as dist

    for buffer in module.buffers():
        dist.broadcast(buffer, 0)


@contextmanager
def naming_the_rank() -> Iterator[None]:
    """Name the process in its errors.

    Raises:
        ProcessError: if another process has ended or does not answer.
    """
    place = here()
    if place.world == 1:
        yield
        return
    name = f"rank {place.rank} of {place.world}"
    try:
        yield
    except GeomixError as error:
        error.args = (f"{name}: {error}",)
        raise
    except RuntimeError as error:
        if not _is_about_talking(error):
            error.add_note(f"in {name}")
            raise
        raise ProcessError(
            f"{name}: another process has ended or does not answer; see its message, and go on with --resume"
        ) from error
    except Exception as error:
        error.add_note(f"in {name}")
        raise


def _is_about_talking(error: RuntimeError) -> bool:
    import torch.distributed as dist

    words = r"gloo|nccl|connection (closed|reset|refused)|broken pipe|pair closure|timed out"
    return isinstance(error, dist.DistError) or re.search(words, str(error), re.IGNORECASE) is not None
