"""The verb that shows the main job on built-in input."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from geomix.options import Quiet


def demo(
    *,
    output: Annotated[
        Path, Parameter(name=["--output", "-o"], help="Folder for the page and its text; replaced if there.")
    ] = Path("demo"),
    rows: Annotated[int, Parameter(help="Lines on the page.")] = 12,
    seed: Annotated[int, Parameter(help="Which made-up words.")] = 1,
    quiet: Quiet = False,
) -> None:
    """Write a page with a handwriting font, find its lines, read them, and hold both against the truth."""
    import numpy as np
    from PIL import Image

    from geomix.checkpoint import bundled_models
    from geomix.files import make_folder
    from geomix.report import table
    from htr.io.images import read_image
    from htr.io.pages import write
    from htr.layout.sheet import as_sheet
    from htr.predict.names import write_all
    from htr.predict.pages import default_model, find_page, load, model_reader, read_page
    from htr.synthetic import draw_page, sentence
    from htr.task.scoring import PageScore

    make_folder(output)
    rng = np.random.default_rng(seed)
    pixels, truth = draw_page([sentence(rng) for _ in range(rows)], rng)
    Image.fromarray(pixels).save(output / "synthetic.png")
    write(truth, output / "truth.xml", "page", overwrite=True)
    image = read_image(output / "synthetic.png")
    sheet = as_sheet(image)
    page = find_page(sheet)
    score = PageScore()
    if bundled_models("htr"):
        page = read_page(sheet, model_reader(load(default_model())), page)
        score.add(page, truth)
        print(page.text)
        figures = score.scores()
    else:
        score.add(page, truth)
        figures = score.line_scores()
    print(table(("metric", "value"), list(figures.items())))
    print("The page is drawn with a font: this shows that all parts work together, and says nothing about")
    print("real hands.")
    write_all(image, page, output, ("txt", "page", "alto", "json"), picture=True, overwrite=True)
    for path in sorted(output.glob("synthetic*")):
        print(path)
