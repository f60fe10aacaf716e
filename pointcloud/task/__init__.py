"""Training of models for point clouds, and what a model is worth."""
