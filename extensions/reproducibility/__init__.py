"""What makes a training run the same again."""
