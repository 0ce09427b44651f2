"""How numbers are shown: curves, pictures, tables.

Its files in reading order; each imports only those above it:

    curves        curves that grow with a training and yet stay short
    loss_figure   the picture of loss curves
    tables        tables of numbers as text
"""
