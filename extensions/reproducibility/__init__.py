"""Reproducibility: what makes a training repeatable.

Its extensions, one per file:

    Deterministic  operations that give the same result each time
"""
