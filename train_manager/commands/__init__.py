"""The command line: a file for each command of ``train-manager``.

Its files in reading order; each imports only those above it:
"""
