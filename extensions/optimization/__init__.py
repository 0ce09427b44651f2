"""Training practices: how gradients and weights are treated."""
