"""Numbers of many steps: how they are deferred, averaged, measured and monitored.

Its files in reading order; each imports only those above it:

    deferred      scalars that stay on their device until many of them are read at once
    averages      the weighted mean, and the exponential moving average
    metric        one metric: a function, or an object that accumulates
    monitor       one number of the evaluations, and the patience with it
"""
