"""The parts of TrainManager; the loop itself is in ``manager.py``.

Its files in reading order; each imports only those above it:

    outside_stops  signals that end a run
    results       what training and evaluation return
    losses        losses that a model adds, and losses of several heads
    model_calls   how a model is called with its inputs
    objectives    prediction, loss and metrics in one object
    arguments     what the arguments must be, and what must hold before a run
    optimizers    the optimizers and learning rate schedules, made and checked as they are given
    calls         which calls a program has made, for a resumed one makes them again
    phases        the attributes that a phase sets
    outputs       what a batch, a prediction and a loss must be
    cures         what is added to an error of torch
    skip          skip a batch or a stage
    modes         set and restore train and eval mode
    windows       from the first backward of an optimizer to its step
    requests      what hooks and the data request of the loop
    history       the figures of each epoch and each evaluation
    run_state     what a run counts, and what hooks have requested in it
    feed          the batches that a run trains and evaluates on
    overridable   the methods that a subclass overrides
    eval_at       the argument that says when training evaluates
    scheduled_eval  the extension that evaluates within epochs
    description   a training in a few words
    recorded_arguments  what a TrainManager was made with
    rebuilt_arguments  how it is made again from a checkpoint
    parts         what a training consists of, and what a phase replaces of it
    saved_state   the state of a training in plain dicts
    control       what hooks read of the loop and request of it
    saving        what a checkpoint holds of a training, and how a hook asks for one
    entering      what a call and a run require before they begin
"""
