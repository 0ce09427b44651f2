"""Logging: what a training shows while it runs.

Its extensions, one per file:

    Avg          the running mean of any fixture
    ProgressBar  bars in a terminal
"""
