"""`geomix htr VERB`: the words for what the domain can do."""

from cyclopts import App

from htr.cli import demo, draw, language, learn, lines, transcribe

app = App(name="htr", help="Scanned handwritten pages to text, PAGE XML and ALTO.")
app.command(transcribe.transcribe)
app.command(lines.lines)
app.command(learn.train)
app.command(learn.evaluate)
app.command(learn.study)
app.command(learn.import_model, name="import")
app.command(draw.draw)
app.command(language.app)
app.command(demo.demo)
