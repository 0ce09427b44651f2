"""Optimization: how gradients are computed, changed and applied, and how the weights move.

Its extensions, one per file:

    Accumulate        one step of the optimizer for several batches
    ClipGradients     gradients that are at most as long as a limit
    CombineGradients  gradients of several tasks that a function combines
    Compile           a batch as one graph of torch.compile
    Constrain         weights that a function keeps within bounds
    Distil            a student that learns the answers of a teacher
    EMA               an average of the weights, for evaluation
    EWC               a later task that is learned near the weights of an earlier one
    FreezeModules     parts of the model that are not trained
    LRSchedule        learning rates from a scheduler of torch
    MixedPrecision    the model and the loss in 16 bits
    SAM               steps with the gradient of a nearby point where the loss is larger
    WarmUp            learning rates that begin small
"""
