"""What finds mistakes in a training."""
