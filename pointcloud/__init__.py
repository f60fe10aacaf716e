"""Point clouds of any format become the same clouds with classes."""
