"""Trainings that are tried and put back: the learning rate, faults before the first step, speed, and the resumption.

Its files in reading order; each imports only those above it:

    few_batches        the first two batches and the last
    first_batches      the first batches, in place of all
    trial              a training that is tried on a few batches, and put back
    lr_finder          the learning rate range test
    first_steps        the first steps of a training, which the checks of diagnose share
    overfit_reasons    settings because of which one batch is not learned
    diagnose           faults of a training, found before it trains
    rehearse           all of a long training in a short one
    tricks             what may make the steps of a training faster
    tune_report        what the trials of tune have shown, and the lines to paste
    resumed_runs       the runs of one training: to the end, killed, resumed
    verify_resume      a training that is killed and resumed, compared with one that is not
    tune               tricks tried on a training, alone and together
"""
