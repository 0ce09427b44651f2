"""The loop, in the classes that TrainManager is made of, and its state; ``manager.py`` has the public methods.

A contributor reads ``stages.py`` (the map of the loop), and here ``training`` and ``batch`` first. All files in the
order of their imports; each imports only those above it:

    losses        losses that a model adds, and losses of several heads
    model_calls   how a model is called with its inputs
    objectives    prediction, loss and metrics in one object
    arguments     checks of the arguments, and checks before a run
    schedulers    learning rate schedulers: made, checked, saved and loaded
    windows       from the first backward of an optimizer to its step
    groups        parameter groups by patterns of names
    optimizers    the optimizers, made and checked as they are given
    saved_state   a saved state compared with the components of a training, and restored to them
    extension_attributes  attributes of extensions that a checkpoint holds
    counts        how much was trained in all
    parameter_check  the extension that looks for parameters that a training leaves out
    last_batch    a last batch that is too small for a norm
    ranks         the processes that train together
    step          one batch that is trained on
    stretched     a prediction and targets in two shapes, which a loss would stretch
    outputs       checks of a batch, a prediction, a loss and results
    probe         forward passes beside the training
    example_losses  the loss of each example of a batch
    graphs_by_shape  what the graphs of training and of evaluations share, and what the first one saves
    graphs        the graphs of a model, a loss and an optimizer, by the shape of the batch
    eval_graphs   the graphs of evaluations and of predict
    setup         the components of a training: model, loss, optimizers, data, ...
    feed          the batches that a run trains and evaluates on
    requests      requests of hooks and of the data to the loop
    run_state     the requests of the hooks of a run, and the results of its evaluations
    call          where a training call began, and where it will end
    books         values that extensions measure over an epoch or a phase, and that die with it
    drawing       the base of extensions that draw
    layer_watcher  the base of extensions that measure the layers of a model
    evaluation_watcher  the base of extensions that look at the examples of evaluations
    epoch         an epoch that is open, and the part of it that the present training call trains
    batch_losses  the losses of the batches, handed to all readers
    progress      how far the training has come, or a phase of it
    level         the training itself, or a phase in it: its setup and its progress
    program       the training calls and phases of a program, which makes them again as it resumes
    skip          skip a batch or a stage
    modes         set and restore train and eval mode
    eval_at       the argument that says when training evaluates
    scheduled_eval  the extension that evaluates within epochs
    step_limit    the extension that ends a training after a number of steps
    recorded_arguments  the arguments of a TrainManager, recorded for checkpoints
    rebuilt_arguments  these arguments, rebuilt from a checkpoint
    held          an attribute that an object of the manager holds
    taken_names   names of the library that a subclass of a manager may not take
    attributes    what a TrainManager is made of
    how_far       how far its training has come
    overridable   the methods that users override, and which of them a call uses
    asking        what hooks ask for: a stop, an evaluation, a checkpoint, a closure
    saving        the table of what a checkpoint holds; saving and loading
    run           a run and the phases in it; what is checked before, loaded and saved
    batch         a batch that is trained on or evaluated, and the stages inside it
    ways          how batches run beside Compile, as far as hooks say: as one graph, as two, or eagerly
    compiling     what the extension Compile keeps while a run is open, and tells
    compiled      a batch that graphs train on or evaluate
    evaluation    evaluation and prediction
    training_call  how much of a training call is left, where it ends, and what it returns
    training      the page: a training call, its epochs, their batches, and the requests between two batches
    own_loop      batches and epochs of a loop of the program's own
"""
