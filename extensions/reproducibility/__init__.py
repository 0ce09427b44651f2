"""Reproducibility: what makes a training repeatable.

Its extensions, one per file:

    Checkpoints    the whole training in files, and going on from there
    CodeRecord     which code a training ran
    Deterministic  operations that give the same result each time
    RunRecord      what each run was, in run.json
    TimeLimit      an end of the run before a time is over
"""
