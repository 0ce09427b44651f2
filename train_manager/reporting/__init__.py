"""How the numbers of a training are shown: curves, the figure of the losses, text tables, texts of values.

Its files in reading order; each imports only those above it:

    curves        curves of a training that stay short
    loss_figure   the figure of loss curves
    tables        tables of numbers as text
    values        the values of fixtures in a few characters
"""
