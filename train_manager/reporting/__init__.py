"""How the numbers of a training are shown: texts of values, curves and their figures, tables, lines.

Its files in reading order; each imports only those above it:

    values             the values of fixtures in a few characters
    terminal_text      texts that fit a terminal, and that it does not obey
    terminal           lines and tables in a terminal, in colours and as wide as it is
    curves             curves of a training that stay short
    panels             what a picture of lines shows
    loss_panels        the panels of loss curves
    svg                panels as an SVG file, without matplotlib
    pictures           pictures as PNG files, and inputs of models as pictures
    figures            panels as figures of matplotlib
    layer_figures      numbers of layers as such figures
    evaluation_figures confusion matrices and galleries of examples as such figures
    tables             tables of numbers as text
    results            the results that training and evaluation return
    history            the metrics of each epoch and each evaluation
    epoch_table        a table with a line for each epoch
    pace               how often something is drawn that nobody looks at
    above_bars         what a program prints while bars are drawn
    lines              lines of text in a terminal, a file or a notebook
    epoch_lines        lines that tell what epochs have come to
    description        a training in a few words
"""
