"""The files that a training writes.

Its files in reading order; each imports only those above it:

    files         files that are replaced as a whole
"""
