"""The verb that gives every point a class."""

import logging
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from geomix.options import BatchOptions, DeviceOption, MemoryOption, ModelOption
from pointcloud.cli.options import FLAG, Reading, Views
from pointcloud.io.options import ReadOptions

log = logging.getLogger(__name__)


def segment(
    *inputs: Path,
    output: Annotated[
        Path,
        Parameter(
            name=["--output", "-o"],
            help="The file with classes; its suffix says the format. A folder for several inputs.",
        ),
    ],
    model: ModelOption = "aerial",
    preview: Annotated[
        Path | None, Parameter(help="Also draw the classes from above, as PNG; a folder for several inputs.")
    ] = None,
    extra: Annotated[
        tuple[Literal["confidence", "entropy"], ...],
        Parameter(
            consume_multiple=True,
            help="Fields that are written beside the class: confidence (probability of the class), entropy "
            "(how undecided the model is, in nats).",
        ),
    ] = (),
    confidence: Annotated[bool, Parameter(**FLAG, show=False)] = False,
    entropy: Annotated[bool, Parameter(**FLAG, show=False)] = False,
    reading: Reading = ReadOptions(),
    project: Annotated[
        bool, Parameter(**FLAG, help="Accept degrees, and predict in a local projection in metres.")
    ] = False,
    tta: Views = False,
    unlabelled: Annotated[
        int | None, Parameter(help="Class id of points that cannot be labelled; 0 if that is no class.")
    ] = None,
    noise: Annotated[
        bool | None,
        Parameter(
            negative="--no-noise",
            help="Find isolated points below the ground, in the air and far away first, and leave them out; "
            "by default where they would spoil the features of other points.",
        ),
    ] = None,
    noise_id: Annotated[
        int | None,
        Parameter(help="Class id of noise; 7 and 18 in LAS if not given, elsewhere that of --unlabelled."),
    ] = None,
    device: DeviceOption = "auto",
    memory: MemoryOption = None,
    batch: BatchOptions = BatchOptions(),
) -> int:
    """Give every point of a scan a class and write the same file with classes.

    LAS, LAZ, COPC, PLY, PCD, E57, KITTI and nuScenes .bin, ScanNet, numpy and text come in; all points go
    out in their order, with every other field as it was. Scans are never cut into tiles.
    """
    from geomix.checkpoint import card_of, kept_model
    from geomix.device import choose_device
    from geomix.files import expand
    from geomix.parallel.jobs import run_jobs
    from pointcloud.io import WriteOptions, check_output
    from pointcloud.io.preview import write_preview
    from pointcloud.predict import segment_file
    from pointcloud.predict.names import outputs_for

    scans = expand(inputs)
    paths = outputs_for(scans, output)
    pictures = outputs_for(scans, preview, ".png") if preview else {}
    if len(scans) == 1 and not (batch.resume or batch.skip_existing):  # before the model is loaded
        check_output(scans[0], paths[scans[0]], batch.overwrite)
    kept_model(model, choose_device(device), "pointcloud")  # a wrong name is one error, not one per scan
    old = [name for name, wanted in (("confidence", confidence), ("entropy", entropy)) if wanted]
    if old:
        log.warning("--%s is now --extra %s; the old name goes with the next release", old[0], old[0])
    fields = tuple(dict.fromkeys((*extra, *old)))

    def work(path: Path) -> list[Path]:
        target, loaded = paths[path], kept_model(model, choose_device(device), "pointcloud")
        result = segment_file(
            path,
            target,
            loaded,
            reading=reading,
            writing=WriteOptions(extra=fields),
            memory=memory,
            project=project,
            augmented=tta,
            unlabelled=unlabelled,
            noise=noise,
            noise_id=noise_id,
            overwrite=batch.overwrite,
        )
        if path in pictures:
            write_preview(result, pictures[path], card_of(loaded).classes, batch.overwrite)
        return written(path)

    def written(path: Path) -> list[Path]:
        return [paths[path], *([pictures[path]] if path in pictures else [])]

    return run_jobs(scans, work, batch, outputs=written, done=lambda files: print(*files, sep="\n"))
