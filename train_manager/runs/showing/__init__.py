"""Pictures and pages of runs: of a run as one page of HTML, of one that trains in a notebook; and its last lines.

Its files in reading order; each imports only those above it:

    ending         the last lines of a training: by what it ended, and whose weights the model has
    live_losses    the losses of batches as short curves, while they are measured
    live_svg       the picture that a notebook shows while a run is open
    clocks         which epoch, example and second a step was at
    curves         the curves of runs, by plot
    layers         the numbers of layers
    results        per-class results, pictures and texts
    summary_facts  the summary at the top of the page
    page           the page
"""
