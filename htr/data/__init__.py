"""Line images with their texts: where they come from, what a model is fed, and its batches."""
