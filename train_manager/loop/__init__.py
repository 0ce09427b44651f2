"""What TrainManager is made of; the loop itself is in ``manager.py``.

Its files in reading order; each imports only those above it:

    results       what training and evaluation return
    losses        losses that a model adds, and losses of several heads
    objectives    prediction, loss and metrics in one object
    arguments     what the arguments of a TrainManager must be
    outputs       what a batch, a prediction and a loss must be
    skip          leave a batch or a stage out
    randomness    random states, seeded and preserved
    modes         train and eval mode, restored
    run_state     what is counted and asked for in a run
    feed          which batches a run trains and evaluates on
    algorithm     what a subclass overrides
"""
