"""What a run was: ``run-<id>.json``, written and read; and what it came to, by that and by its metrics.

Its files in reading order; each imports only those above it:

    processes     which process it is, and whether it is still there
    packages      which packages are installed
    command       by which command a program was started, and the one that starts it again
    environment   where a program ran
    trained_parts  what is trained, and by what
    made_objects  the optimizers and schedulers that lambdas and functions have made
    run_file      run-<id>.json: what a run was, and how it has ended; written and read
    run_notes     what another tool shows of a run beside its metrics
    run_paths     which run a path means, and which runs are below a folder
    run_summary   a run in a line
    loss_curves   the curves of LossCurves, of a training that is gone
    read_run      the folder of a training, read at any time
"""
