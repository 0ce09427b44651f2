"""What is wrong with a model or its training: each check is a function of what it needs, and none is an extension.

Its files in reading order; each imports only those above it:

    replay        where nan and infinities come from in a pass that is run again
    batch_again   the batch of a training, run again from the same random state
    parameters    parameters that a training leaves out, and layers in the wrong mode
"""
