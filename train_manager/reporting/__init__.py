"""How the numbers of a training are shown: texts of values, curves and their figures, tables, lines.

Its files in reading order; each imports only those above it:

    values             the values of fixtures in a few characters
    curves             curves of a training that stay short
    loss_figure        the figure of loss curves
    svg_figure         panels of curves as an SVG file
    loss_svg           the picture of loss curves as such a file
    history_figure     the figure of a history
    png                pictures as PNG files
    tables             tables of numbers as text
    epoch_table        a table with a line for each epoch
    lines              lines of text in a terminal, a file or a notebook
    epoch_lines        lines that tell what epochs have come to
"""
