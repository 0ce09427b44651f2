"""Data: which data are trained on next.

Its extensions, one per file:

    Curriculum  a teacher that chooses the set of each batch by what the model learns from it
"""
