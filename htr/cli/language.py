"""The verbs of `geomix htr lm`: language models for the reading of lines."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from geomix.options import Overwrite, Quiet

app = App(name="lm", help="Language models that tell likely words from unlikely ones.")


@app.command
def train(
    *texts: Annotated[
        Path,
        Parameter(
            help="UTF-8 text files, or tars of lines, whose training texts count; named twice, counted twice."
        ),
    ],
    output: Annotated[Path, Parameter(name=["--output", "-o"], help="The model to write, such as my.lm.")],
    order: Annotated[int, Parameter(help="Characters that the model looks at, 1 to 8.")] = 6,
    least: Annotated[
        int,
        Parameter(help="Leave out what is seen less often than this; a larger number gives a smaller file."),
    ] = 1,
    source: Annotated[str, Parameter(help="Where the texts come from, for the file.")] = "",
    licence: Annotated[str, Parameter(help="Their licence, for the file.")] = "",
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Learn a character language model from text, for `transcribe --lm`.

    Text like that of the pages helps most. Long paragraphs are broken into lines as on a page, and all is
    written in the convention of the bundled models: ' for ’, s for ſ.
    """
    from geomix.errors import InputError
    from htr.predict.lm import SUFFIX, CharacterModel
    from htr.predict.texts import read_texts

    if output.suffix != SUFFIX:
        raise InputError(f"{output}: a language model is a file of its own kind; end the name in {SUFFIX}")
    model = CharacterModel.learn(read_texts(texts), order, least)
    model.save(output, overwrite, source=source, licence=licence)
    print(output)
