"""What is asked of a TrainManager around a training.

Its files in reading order; each imports only those above it:

    summary            a table of a model's layers
    preserve           leave a training as it was found
    lr_finder          the learning rate range test
    trial_steps        steps of a training that are put back, and what they show
    diagnose           what is wrong with a training, before it trains
    comparing          where two states differ
    driven             a training that is watched, and killed where it is told to
    processes          how it is run, each time in a process of its own
    killed_runs        its runs: to the end, killed, resumed
    resume_report      whether they come to the same, and what explains it if not
    verify_resume      a training that is killed and resumed, compared with one that is not
"""
