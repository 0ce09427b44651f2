"""The parts of a model, and what trains them.

Its files in reading order; each imports only those above it:

    modules       submodules, by name or pattern
    optimizers    learning rates, parameters with gradients, and how an optimizer is made
    buffers       what a forward pass moves, put back
    constraints   functions that keep weights within bounds: max_norm, unit_norm, non_negative
"""
