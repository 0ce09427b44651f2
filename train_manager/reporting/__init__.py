"""How the numbers of a training are shown: texts of values, curves and their figures, tables, lines.

Its files in reading order; each imports only those above it:

    values             values as text: in a few characters, and in tables
    terminal           texts, tables and lines in a terminal, in colours and as wide as it is
    curves             curves of losses over three axes
    panels             what a picture of lines shows
    loss_panels        the panels of loss curves
    svg                panels as an SVG file, without matplotlib
    pictures           pictures as PNG files, and inputs of models as pictures
    figures            panels as figures of matplotlib
    layer_figures      numbers of layers as such figures
    evaluation_figures confusion matrices and galleries of examples as such figures
    results            the results that training and evaluation return
    history            the metrics of each epoch and each evaluation
    pace               how often something is drawn that nobody looks at
    lines              lines of text above bars in a terminal, in a file or a notebook
    epoch_table        a table with a line for each epoch, which grows line by line
    description        a training in a few words
"""
