"""Logging: what a training shows while it runs.

Its extensions, one per file:

    Avg          the running mean of any fixture
    Log          a line for each epoch, or every so many batches
    MetricStore  all figures in one file, which other programs read while it runs
    MLflow       the same figures in MLflow
    ProgressBar  bars in a terminal
    TensorBoard  the same figures in TensorBoard
    WandB        the same figures in Weights & Biases
"""
