"""Debugging: checks that find mistakes in a training.

Its extensions, one per file:

    BatchLeakCheck   a warning if examples of the first batch leak into each other
    NonFiniteFinder  the module and the batch that the first nan or infinity comes from
    Profile          traces of a few steps, call by call
    StopOnNonFinite  an error soon after a loss that is nan or infinite
"""
