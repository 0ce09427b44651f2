"""Messages for a person: errors, lines of the source, names that may be meant, findings. Standard library only.

Its files in reading order; each imports only those above it:

    source_locations  a line of the source as file:line
    errors            the errors, and their text
    words             names that may be meant by a name that is not there
    wrapping          long texts in lines
    showing           values in a repr
    tracebacks        the frames of a traceback that are the user's
    findings          the findings of checks, and how far each check has looked
    argument_names    refuses unknown arguments of a class
"""
