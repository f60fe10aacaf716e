"""From files and folders to batches: preprocessing, labels, data sets."""
