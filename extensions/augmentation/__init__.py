"""Augmentation: batches that are changed before they are trained on.

Its extensions, one per file:

    CutMix  images with a box of another image in them
    Mixup   blends of two examples
"""
