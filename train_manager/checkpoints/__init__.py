"""The files that a training writes.

Its files in reading order; each imports only those above it:

    hashed_file   a file that is written, synced and hashed
    tensors       tensors in one file that cannot run
    state_tree    a state as JSON and tensors, and back
    made          how optimizers and schedules were made: their classes and options
    fit           saved components compared with those of a program, when states are loaded
    parameter_order  the parameters of optimizers by their names, in the order of the program
    frozen        the frozen parameters of a module, compared and restored
    extension_fit  the extensions of a training, compared when states are loaded
    left_out      changed values that states leave out
    base          the tensors that the checkpoints of a training leave out, by their hashes
    manifest      which files belong to a checkpoint
    checkpoint_names   the names of checkpoints, and the folder of a training's checkpoints
    verification  the checks before a checkpoint is read
    checkpoint    one checkpoint: written as a whole, checked before it is read
    weights_file  weights from a file of any program
    copies        a copy of a state that the training no longer changes
    checkpoint_folder  all checkpoints of a training: the sound ones, and the ones that stay
    mirror        copies of the checkpoints of a training in a second folder
    weights       the weights of a checkpoint, or the mean of several
    opened_folder  the folder of a training that runs: its lock, and the checkpoint to resume from
    selection     the choices of a user about the content of a checkpoint
    arguments     the arguments of Checkpoints: when to save, and where to resume
    as_text       the contents of a checkpoint, as lines or as data, read without torch
"""
