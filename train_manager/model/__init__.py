"""The modules and parameters of a model that extensions work on, and the optimizer that trains them.

Its files in reading order; each imports only those above it:

    modules       submodules, chosen by name or pattern
    chosen_parameters  parameters by their names, and which of them patterns choose
    layer_numbers  the layers of a model, from its inputs to its outputs
    combined_optimizer  one optimizer whose parameter groups are of several classes
    group_facts   the parameter groups of an optimizer as a table has them
    layers        the parameters of an optimizer, by the modules that own them
    clipping      the clipping of gradients as plain arithmetic
    optimizers    learning rates, parameters with gradients, and the hook of a step
    parameters    parameters that a training leaves out, and layers in the wrong mode
    weighted_loss  the losses of one of several processes, and the means of their gradients
    per_object    values that an extension keeps for each model or optimizer
    trained_layers  the layers that an optimizer trains, found once
    activations   the outputs of the modules in one forward pass
    sharding      tensors of which each process has a shard, and whole tensors that meet them
    replacement   parameters that take the place of others in an optimizer
    buffers       buffers that a forward pass must not change, or that a state is loaded into
    summary       the layers of a model, with their parameters and shapes
    graph         a function that torch makes one graph of
    arithmetic    the step of an optimizer as plain arithmetic on its own state
    constraints   functions that keep weights within bounds: max_norm, unit_norm, non_negative
"""
