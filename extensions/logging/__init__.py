"""Logging: what a training shows while it runs.

Its extensions, one per file:

    Avg          the running mean of any fixture
    Log          a line every so many batches, and one for each evaluation
    ProgressBar  bars in a terminal
"""
