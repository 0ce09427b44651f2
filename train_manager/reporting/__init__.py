"""How the numbers of a training are shown: texts of values, curves and their figures, tables, lines.

Its files in reading order; each imports only those above it:

    values             the values of fixtures in a few characters
    curves             curves of a training that stay short
    loss_figure        the figure of loss curves
    history_figure     the figure of a history
    tables             tables of numbers as text
    epoch_table        a table with a line for each epoch
    lines              lines of text in a terminal, a file or a notebook
    epoch_lines        lines that tell what epochs have come to
    recorded_rows      what is recorded of a run, as names and texts
    checkpoint_text    what a checkpoint holds, as lines
    terminal_text      texts that fit a terminal
    columns            a table with a column for each run
    run_list           runs, a line for each
    compared           what a comparison of runs has found
    comparison_lines   a comparison as lines
    comparison_figure  its curves
    page_template      the template of a page
    comparison_page    a comparison as a page of HTML
    terminal           lines in a terminal, in colours if it has them
"""
