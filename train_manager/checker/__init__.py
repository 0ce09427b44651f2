"""The checker reads the source of a class, finds mistakes in its hooks, and tells what runs where.

The runtime does not need this package: ``Extensible.check`` and ``explain`` import it when they are called. It imports
the core and the standard library only. Its files in reading order; each imports only those above it:

    method_source  the source of one method, and what its expressions stand for
    outline        what a method does with stages and fixtures, item by item
    reader         makes the outline of a method from its source
    tree           the stages of a class, and what may be alive at each
    hook_writes    the fixtures that a hook writes beside those it declares
    walk           follows the outlines through all calls and fills the tree
    mistakes       compares hooks and providers with the tree
    check          one error with all mistakes, or a list of what is unknown
    explain        what runs where and why, as text or data
"""
