"""Pictures and pages of runs: of a run as one page of HTML, and of one that trains in a notebook.

Its files in reading order; each imports only those above it:

    live_losses      the losses of batches as short curves, while they are measured
    live_svg         the picture that a notebook shows while a run is open
    shown_run        a run to show, from its folder
    stored_metrics   the metrics of a run, from its store
    clocks           which epoch, example and second a step was at
    shown_curves     the curves of runs, by plot
    shown_layers     the numbers of layers
    shown_results    per-class results, pictures and texts
    summary_facts    the summary at the top of the page
    compared_tables  the tables of compare
    report_page      the page
    points_file      the curves as lines of JSON
    renewing         the page of a run that has not ended
"""
