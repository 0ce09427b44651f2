"""How the numbers of a training are shown: curves, figures, tables, texts of values.

Its files in reading order; each imports only those above it:

    curves        curves of a training that stay short
    loss_figure   the figure of loss curves
    history_figure  the figure of a history
    tables        tables of numbers as text
    values        the values of fixtures in a few characters
"""
