"""Visualization: pictures of a training.

Its extensions, one per file:

    Live        the loss and the first metric in a notebook, renewed while it trains
    LossCurves  the losses by epoch, by batch and by example
"""
