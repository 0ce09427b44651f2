"""What is wrong with a model or its training: each check is a function of what it needs, and none is an extension.

Its files in reading order; each imports only those above it:

    parameters    parameters that a training leaves out, and layers in the wrong mode
"""
