"""Training a line recogniser and scoring it on lines and pages."""
