"""How numbers of many steps are measured, kept and compared.

Its files in reading order; each imports only those above it:

    deferred      scalars kept on their device, and read in one go
    averages      means with weights, and means that move
    metric        one metric, a function or an object
    monitor       one number of an evaluation, and how long it may get no better
"""
