"""Reproducibility: records and settings that make a training repeatable.

Its extensions, one per file:

    Checkpoints    the whole training in files, and resuming from there
    CodeRecord     the code that a run used
    Deterministic  operations that give the same result each time
    RunRecord      the command, data and outcome of each run, in run-<id>.json
    TimeLimit      an end of the run before a time is over
"""
