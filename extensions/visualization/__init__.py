"""Pictures of a training."""
