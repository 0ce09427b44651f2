"""The parts of TrainManager; the loop itself is in ``manager.py``.

Its files in reading order; each imports only those above it:

    outside_stops  signals that end a run
    results       what training and evaluation return
    losses        losses that a model adds, and losses of several heads
    own_losses    what an own train_batch adds to the loss, and what it updates with
    model_calls   how a model is called with its inputs
    objectives    prediction, loss and metrics in one object
    arguments     what the arguments must be, and what must hold before a run
    optimizers    the optimizers and learning rate schedules, made and checked as they are given
    saved_kinds   a saved state whose values are of another kind than those here
    saved_state   a saved state compared with the parts of a training, and restored to them
    counts        how much was trained in all
    parameter_check  which parameters a training leaves out
    step          one batch that is trained on
    windows       from the first backward of an optimizer to its step
    outputs       what a batch, a prediction and a loss must be
    probe         what is done with a batch beside the training
    example_losses  the loss of each example of a batch
    region        a batch without the stages inside its own
    setup         what is trained, with what and on what
    feed          the batches that a run trains and evaluates on
    requests      what hooks and the data request of the loop
    run_state     what hooks have requested in a run, and what its evaluations have found
    call          where a training call began, and where it will end
    books         what is measured over an epoch or a phase, kept as long as that lives
    layer_watcher  the base of extensions that measure the layers of a model
    evaluation_watcher  the base of extensions that look at the examples of evaluations
    epoch         an epoch that is open, and the part of it that the present call trains
    batch_losses  the losses of the batches, handed to all readers
    progress      how far the training has come, or a phase of it
    calls         which calls a program has made, for a resumed one makes them again
    phases        what each phase has of its own, and which were opened
    resume        what a program that was started again has still to make again
    cures         what is added to an error of torch
    skip          skip a batch or a stage
    modes         set and restore train and eval mode
    history       the figures of each epoch and each evaluation
    eval_at       the argument that says when training evaluates
    scheduled_eval  the extension that evaluates within epochs
    description   a training in a few words
    recorded_arguments  what a TrainManager was made with
    rebuilt_arguments  how it is made again from a checkpoint
    interface     what users override, set, read and call around a run
    closed_stages  which stages of a batch stay closed
    inner_stages  the stages inside a batch
"""
