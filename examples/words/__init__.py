"""Label the words of a text: the smallest domain of geomix, as an example of what one needs."""
