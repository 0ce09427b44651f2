"""How the numbers of a training are shown: texts of values, curves and their figures, tables, lines.

Its files in reading order; each imports only those above it:

    values             values as text: in a few characters, and in tables
    terminal           texts, tables and lines in a terminal, in colours and as wide as it is
    curves             curves of losses over three axes
    loss_figure        the figure of loss curves
    svg_figure         panels of curves as an SVG file
    png                pictures as PNG files
    embedded           pictures inside of SVG files and of notebooks
    heat_map           a heat map as part of an SVG file
    layers_svg         numbers of layers as lines or as a heat map
    activations_svg    statistics of activations, each as such a picture
    histograms_svg     histograms of layers
    confusion_svg      which classes are taken for which
    gallery_svg        examples with what a model said of them
    speed_svg          how fast a run is
    loss_svg           the picture of loss curves as such a file
    history_figure     the figure of a history
    results            the results that training and evaluation return
    history            the metrics of each epoch and each evaluation
    pace               how often something is drawn that nobody looks at
    lines              lines of text above bars in a terminal, in a file or a notebook
    epoch_table        a table with a line for each epoch, which grows line by line
    description        a training in a few words
"""
