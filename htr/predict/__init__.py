"""From a page image to its text: lines found or given, cut out, read, and put back in their places."""
