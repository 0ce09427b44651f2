"""Debugging: what finds mistakes in a training.

Its extensions, one per file:

    StopOnNonFinite  an error soon after a loss that is nan or infinite
"""
