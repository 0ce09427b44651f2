"""Constructor arguments: recorded as an object is made, written in a checkpoint, and used to rebuild the object.

Its files in reading order; each imports only those above it:

    record_tree   the form in which arguments are written
    signatures    the parameters of classes and functions
    torch_names   the names of PyTorch that any file may use
    registry      the classes and functions that a file may name
    lambdas       a lambda in words
    torch_values  values of PyTorch and NumPy as trees
    value_trees   values as trees
    recorded      the decorator that records the arguments of a constructor
    places        paths that a file gives to extensions, left out
    overrides     values that replace recorded ones
    memory_limit  the memory that tensors may take while objects are rebuilt
    making        objects rebuilt from their records
    recorded_rows  the record of an object, as names and texts
"""
