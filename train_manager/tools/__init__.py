"""What is asked of a TrainManager around a training.

Its files in reading order; each imports only those above it:

    summary            a table of a model's layers
    preserve           leave a training as it was found
    lr_finder          the learning rate range test
    comparing          where two states differ
    driven             a training that is watched, and killed where it is told to
    processes          how it is run, each time in a process of its own
    killed_runs        its runs: to the end, killed, resumed
    resume_report      whether they come to the same, and what explains it if not
    verify_resume      a training that is killed and resumed, compared with one that is not
    stored_curves      loss curves made from the figures that a training has stored
    read_run           the folder of a training, read at any time
    run_figures        the figures of a run, from its folder
    compare_runs       what differs between runs
    comparing_figures  where the figures of two runs differ
    moved_paths        the paths of a repository as they are in a copy of it
    recorded_figures   the figures of a run, as they count in the end
    lost_figures       steps whose figures a killed process did not write
    run_to_repeat      what is recorded of a run
    reproduction       what a run that was run again has come to
    restored_code      its code in a folder of its own
    introduction       what is said of it before it is run again
    repeated_command   how the program of a run is started again
    watched_program    a program in a process of its own
    surroundings       what differs around two runs
    reproduce          a recorded run is run again, and compared
"""
