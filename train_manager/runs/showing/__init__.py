"""Pictures and pages of runs, also of one that trains.

Its files in reading order; each imports only those above it:

    live_losses  the losses of batches as short curves, while they are measured
    live_svg     the picture that a notebook shows while a training runs
"""
