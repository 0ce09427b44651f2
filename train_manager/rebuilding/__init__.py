"""What objects were made with: recorded as they are made, written in a checkpoint, and made again from there.

Its files in reading order; each imports only those above it:

    tree          the form in which arguments are written
    torch_names   the names of PyTorch that any file may use
    registry      the classes and functions that a file may name
    torch_values  values of PyTorch and NumPy as trees
    value_trees   values as trees
    recorded      the decorator that records what objects are made with
    places        paths that a file gives to extensions, left out
    overrides     values that replace recorded ones
    memory_limit  the memory that tensors may take meanwhile
    making        objects made again from what was recorded
    recorded_rows  what is recorded of an object, as names and texts
"""
