"""The files that a training writes.

Its files in reading order; each imports only those above it:

    hash_beside   a hash that is computed in a thread, beside the writing
    hashed_file   a file that is hashed while it is written
    tensor_header  what a file of tensors says of itself, read without torch
    tensor_file   tensors in one file that cannot run
    state_tree    a state as JSON and tensors, and back
    fit           how the parts of a training were made, compared as they are loaded
    parameter_order  the parameters of optimizers by their names, in the order of the program
    frozen        which parameters get no gradient
    extension_fit  with which extensions a training was made
    left_out      what a module has changed that its state leaves out
    manifest      which files belong to a checkpoint
    checkpoint_names   what checkpoints are called, and where those of a training are
    verification  what is checked before a checkpoint is read
    checkpoint    one checkpoint: written as a whole, checked before it is read
    weights_file  weights from a file of any program
    copies        a copy of a state that the training no longer changes
    contents      what a checkpoint holds, told without torch
    leftovers     how checkpoints are deleted, and what killed processes leave behind
    checkpoint_folder  all checkpoints of a training: which one is sound, and which ones stay
    weights       the weights of a checkpoint, or the mean of several
    arguments     what a user says of when to save, and where to go on
    forgotten     what has counted, and no checkpoint holds
    parts         what a checkpoint holds by a user's choice
    as_text       what a checkpoint holds, as lines
"""
