"""Where the result of each input of a batch goes."""

from collections.abc import Sequence
from pathlib import Path

from geomix.errors import InputError
from geomix.files import make_folder
from pointcloud.io import result_name


def outputs_for(inputs: Sequence[Path], output: Path, suffix: str | None = None) -> dict[Path, Path]:
    """Where the result of each input goes: `output` itself, or a file in it where it is a folder.

    In a folder, which is made if needed, results keep the name of their input; but a table of floats becomes
    `.label`, or `_lidarseg.bin` for nuScenes, and a folder of arrays becomes `.npz`.

    Args:
        inputs: files or folders.
        output: a file for a single input; a folder, which has no suffix, for one or more.
        suffix: what is hung on the name of each input instead.

    Raises:
        InputError: if there is no input, two have the same name, or several should go to one file.
    """
    if not inputs:
        raise InputError("name one file or more to segment")
    if output.suffix and not output.is_dir():
        if len(inputs) > 1:
            raise InputError(f"{output}: {len(inputs)} inputs go to a folder; give its name without a suffix")
        return {inputs[0]: output}
    twins = sorted({p.name for p in inputs if sum(q.name == p.name for q in inputs) > 1})
    if twins:
        raise InputError(f"{output}: several inputs are called {', '.join(twins)}; segment them one by one")
    make_folder(output)
    return {path: output / (f"{path.name}{suffix}" if suffix else result_name(path)) for path in inputs}
