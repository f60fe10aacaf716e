"""`geomix pointcloud VERB`: the words for what the domain can do."""

from cyclopts import App

from pointcloud.cli import info, learn, segment, view

app = App(name="pointcloud", help="Point clouds of any format to the same clouds with classes.")
app.command(segment.segment)
app.command(info.info)
app.command(view.view)
app.command(learn.train)
app.command(learn.evaluate)
app.command(learn.study)
app.command(learn.import_published, name="import")
