"""`python -m geomix` is the command `geomix`."""

from geomix.cli import main

main()
