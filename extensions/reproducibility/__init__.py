"""Reproducibility: what makes a training repeatable.

Its extensions, one per file:

    Checkpoints    the whole training in files, and going on from there
    Deterministic  operations that give the same result each time
    TimeLimit      an end of the run before a time is over
"""
