"""Debugging: checks that find mistakes in a training.

Its extensions, one per file:

    BatchLeakCheck   a warning if examples of the first batch leak into each other
    ChangeLog        which hook or body has changed a fixture, a weight or a learning rate, and in which step
    NonFiniteFinder  the step of the first nan or infinity, and the module and the batch that it comes from
    Profile          traces of a few steps, call by call
"""
