"""Where the lines of a page are, in which order they are read, and how one is cut out."""
