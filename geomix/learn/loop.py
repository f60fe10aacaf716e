"""The training loop: what one run does, from an empty run folder to the last epoch."""

import logging
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from geomix.device import choose_device
from geomix.errors import CheckpointError, InputError, MissingFileError, OutputExistsError
from geomix.files import make_folder
from geomix.learn.config import TrainConfig
from geomix.learn.epochs import EpochEnd, EpochLoader, validation
from geomix.learn.task import Task
from geomix.parallel.ranks import STEP_TIMEOUT, first, gather, here, join, naming_the_rank

log = logging.getLogger(__name__)


def fit(
    task: Task,
    data: pl.LightningDataModule,
    config: TrainConfig,
    run_dir: str | Path,
    resume: bool = False,
    max_minutes: float | None = None,
    device: str = "auto",
) -> bool:
    """Train `task` and save what is needed to resume.

    The run folder gets `last.ckpt` after every epoch, `best.ckpt` whenever the task's goal improves, and the
    figures of each epoch in `log.jsonl` and `log.csv`. All randomness is a function of the seed and the
    epoch, so a run that was stopped and resumed ends with the same bits as one that was not; an epoch cut
    short is repeated.

    Under `torchrun` it trains with Lightning's DDP, over gloo on CPUs and over NCCL with one CUDA device per
    process. A step equals that of a single process on the same batch, except that batch norms, and losses
    that are no mean over samples, see one share. Rank 0 writes the run folder, which all must see.

    Args:
        task: what is trained, in place.
        data: gives `train_dataloader()` and `val_dataloader()`, which may be empty. All processes must
            give the same number of training batches, each with the share that `ranks.own` names.
        config: the settings.
        run_dir: the run folder, made if needed.
        resume: continue from `last.ckpt` if there is one.
        max_minutes: start no epoch that would probably end later than this.
        device: `auto`, `cpu` or `cuda`.

    Returns:
        True if all epochs are done, False if the time ran out.

    Raises:
        OutputExistsError: if the folder holds a run already and `resume` is false.
        NonFiniteError: if the loss or its gradient is NaN or infinite.
        InputError: if there is no training batch, or it has fewer samples than there are processes.
        ProcessError: if another process has ended or does not answer.
    """
    join(config.batch_size, device)
    with naming_the_rank():
        return _fit(task, data, config, Path(run_dir), resume, max_minutes, device)


def _fit(
    task: Task,
    data: pl.LightningDataModule,
    config: TrainConfig,
    folder: Path,
    resume: bool,
    max_minutes: float | None,
    device: str,
) -> bool:
    """Do what `fit` says."""
    last = begin(folder, resume)
    if resume and last is None:
        log.info("%s: nothing to resume yet, starting from the beginning", folder)
    end = EpochEnd(folder, config, max_minutes)
    with warnings.catch_warnings():
        # The caller decides on the number of workers and on validation data.
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        warnings.filterwarnings("ignore", ".*but have no `val_dataloader`.*")
        # Lightning uses a function of torch that is deprecated.
        warnings.filterwarnings("ignore", ".*LeafSpec.*deprecated.*", FutureWarning)
        logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
        trainer = pl.Trainer(
            **_machines(device),
            precision="bf16-mixed" if config.precision == "bf16" else "32-true",
            max_epochs=config.epochs,
            accumulate_grad_batches=config.accumulate,
            check_val_every_n_epoch=config.val_every,
            num_sanity_val_steps=0,
            callbacks=[end],
            default_root_dir=folder,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        data.prepare_data()
        data.setup("fit")
        batches = data.train_dataloader()
        if len(batches) == 0:
            raise InputError(
                f"there is no training batch: fewer samples than the batch size of {config.batch_size}?"
            )
        loader = EpochLoader(
            batches, config.seed, config.epoch_steps or len(batches), lambda: trainer.current_epoch
        )
        task.train()
        try:
            trainer.fit(
                task,
                train_dataloaders=loader,
                val_dataloaders=validation(data.val_dataloader()),
                ckpt_path=last,
                weights_only=True,
            )
        except SystemExit:
            # Lightning turns Ctrl+C into an exit; give the caller the original.
            raise KeyboardInterrupt from None
    # No process reads the checkpoints before rank 0 has written them.
    gather(None)
    return end.finished


def begin(folder: Path, resume: bool) -> Path | None:
    """Make the run folder, or find the run in it; all processes must ask.

    Returns:
        The checkpoint to go on from; None where the run starts.

    Raises:
        OutputExistsError: if the folder holds a run and `resume` is false.
    """
    last = folder / "last.ckpt"
    begun = first(last.exists())
    if begun and not resume:
        raise OutputExistsError(f"{folder}: holds a run already; resume it or choose another folder")
    make_folder(folder)
    return last if begun else None


def _machines(device: str) -> dict[str, Any]:
    """The arguments of the Trainer for devices and processes."""
    place = here()
    accelerator = "gpu" if choose_device(device).type == "cuda" else "cpu"
    if place.world == 1:
        return {"accelerator": accelerator, "devices": 1}
    from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
    from lightning.pytorch.strategies import DDPStrategy

    return {
        "accelerator": accelerator,
        "devices": place.local_world,
        "num_nodes": place.world // place.local_world,
        "strategy": DDPStrategy(cluster_environment=TorchElasticEnvironment(), timeout=STEP_TIMEOUT),
        # The data know the shares.
        "use_distributed_sampler": False,
    }


def restore(task: Task, run_dir: str | Path) -> None:
    """Load the best weights of a run into `task`, or the last ones if nothing was validated.

    Raises:
        MissingFileError: if the folder holds no checkpoint.
        CheckpointError: if the weights are those of another model.
    """
    for name in ("best.ckpt", "last.ckpt"):
        file = Path(run_dir) / name
        if file.exists():
            try:
                task.load_state_dict(torch.load(file, map_location="cpu", weights_only=True)["state_dict"])
            except RuntimeError as error:
                raise CheckpointError(
                    f"{file}: holds another model: {str(error).splitlines()[-1].strip()}"
                ) from None
            return
    raise MissingFileError(f"{run_dir}: holds no best.ckpt or last.ckpt; is it the folder of a run?")
