"""`geomix words VERB`."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from geomix.options import BatchOptions, EvaluateOptions, ModelOption, Output, TrainOptions

app = App(name="words", help="Texts to the same texts with a label for each word.")
Data = Annotated[Path, Parameter(name="--data", help="Text file with words as word/label.")]


@app.command
def train(config: str, /, *, data: Data, options: TrainOptions = TrainOptions()) -> None:
    """Train a tagger."""
    from geomix.learn.verbs import train_verb
    from words.task import WordsExperiment

    train_verb(WordsExperiment(config), data, options)


@app.command
def evaluate(*, model: ModelOption, data: Data, options: EvaluateOptions = EvaluateOptions()) -> None:
    """Score a tagger on the sentences that it was not trained on."""
    from geomix.learn.verbs import evaluate_verb
    from words.task import WordsExperiment

    evaluate_verb(WordsExperiment, model, data, "test", options)


@app.command
def label(*texts: Path, model: ModelOption, output: Output, options: BatchOptions = BatchOptions()) -> int:
    """Label every word of texts, into a folder."""
    from geomix.checkpoint import kept_model
    from geomix.files import expand, make_folder
    from geomix.parallel.jobs import run_jobs
    from words.predict import label_file

    def work(path: Path) -> None:
        label_file(kept_model(model, "cpu", "words"), path, output / path.name, options.overwrite)

    make_folder(output)
    return run_jobs(expand(texts), work, options, outputs=lambda path: [output / path.name])
