"""What a run was and what it measured: ``run.json`` and ``metrics.sqlite``, written and read.

Its files in reading order; each imports only those above it:
"""
