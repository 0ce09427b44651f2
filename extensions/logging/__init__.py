"""Logging: lines, bars and files of metrics that a run shows while it is open.

Its extensions, one per file:

    Avg          the running mean of any fixture
    Log          a line for each epoch, or every so many batches
    MetricStore  all metrics in one file, which other programs read while it runs
    MLflow       the same metrics in MLflow
    ProgressBar  bars in a terminal
    TensorBoard  the same metrics in TensorBoard
    WandB        the same metrics in Weights & Biases
"""
