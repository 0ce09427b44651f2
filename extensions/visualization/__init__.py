"""Visualization: pictures of a training.

Its extensions, one per file:

    LossCurves  the losses by epoch, by batch and by example
"""
