"""Logging: what a training shows while it runs.

Its extensions, one per file:

    Avg          the running mean of any fixture
    Log          a line for each epoch, or every so many batches
    ProgressBar  bars in a terminal
"""
