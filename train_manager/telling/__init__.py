"""How a person is told: what went wrong, on which line, and what is meant. Standard library only.

Its files in reading order; each imports only those above it:

    errors            the errors, and how they are told
    words             what is meant by a name that is not there
    showing           values in a repr
    source_locations  a line of the source as file:line
    tracebacks        the frames of a traceback that are the user's
    findings          what checks have found, and how far each has looked
    argument_names    the arguments of a class, of which unknown ones are refused
"""
