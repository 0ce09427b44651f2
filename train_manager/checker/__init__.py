"""What is wrong with the hooks of a class, found by reading its source; what runs where, told. Standard library only.

The runtime does not need this package: ``Extensible.check`` and ``explain`` import it when they are called. Its files
in reading order; each imports only those above it:

    method_source  the parts of one method's source, and what they stand for
    outline        what a method does with stages and fixtures
    tree           the stages of a class, walked without running them
    mistakes       hooks and providers held against the tree
    check          all mistakes as one error, or what could not be known
    explain        what runs where and why, as text or data
"""
