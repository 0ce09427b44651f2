"""Numbers of many steps: how they are deferred, averaged, kept, measured and monitored.

Its files in reading order; each imports only those above it:

    deferred      scalars that stay on their device until many of them are read at once
    host_numbers  numbers that one thread keeps and another one reads
    histogram     histograms that are counted on the device, and the last one of each of several series
    windows       series of a training in windows of steps, and curves
    layer_series  numbers of layers over a training, and their way into a store
    classification  predictions as classes: which a model takes for which, and its surest mistakes
    outside_scores  how foreign an example looks to a classifier
    example_losses  the losses of each example over a training
    speed         how fast a run is
    rate_changes  learning rates, reported when they change
    averages      the weighted mean, and the exponential moving average
    history_rows  the entries of a row of the history
    metric        one metric: a function, or an object that accumulates
    loss_terms    the loss terms, a metric for each name
    shelf         metrics that are named by a string, and functions of a whole evaluation set
    monitor       one number of the evaluations, and the patience with it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# Type checkers read the first branch, Python the second.
if TYPE_CHECKING:
    from train_manager.metrics.shelf import whole as whole
else:
    # Imported when it is first read: `shelf` imports torch, and history_rows and monitor are used without torch.
    def __getattr__(name: str) -> Any:
        if name != "whole":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from train_manager.metrics.shelf import whole

        return whole
