"""`geomix sits VERB`: the words for what the domain can do."""

from cyclopts import App

from sits.cli import demo, export, fields, info, learn, maps, segment, update

app = App(name="sits", help="Satellite image time series to georeferenced class maps.")
app.command(segment.segment)
app.command(update.update)
app.command(info.info)
app.command(export.export)
app.command(learn.train)
app.command(learn.evaluate)
app.command(learn.import_published, name="import")
app.command(learn.study)
app.command(fields.sample)
app.command(maps.zonal)
app.command(maps.polygonize)
app.command(maps.preview)
app.command(maps.preview, name="quicklook", show=False)  # its old name, for one more release
app.command(demo.demo)
