"""Distribution: a training on several processes and GPUs.

Its extensions, one per file:

    Distributed  the same training on every process that torchrun starts
"""
