"""What is asked of a TrainManager around a training.

Its files in reading order; each imports only those above it:

    summary       a table of a model's layers
    preserve      leave a training as it was found
    lr_finder     the learning rate range test
"""
