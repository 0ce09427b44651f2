"""The metrics of a run, sent from ``metrics.sqlite`` to other tools.

Its files in reading order; each imports only those above it:

    sink          what takes the metrics for another tool
    event_values  texts, histograms and pictures as TensorBoard keeps them
    event_file    a sink that writes the event files of TensorBoard
    run_notes     the parameters of a run, and how it has ended
    mlflow_keys   what metrics are called in MLflow
    mlflow_runs   a sink with runs of MLflow
    wandb_runs    a sink with runs of Weights & Biases
    sink_state    sinks.json: what each sink was sent
    sink_feed     sends to a sink what is new, once
    unsent        what a sink lacks, in words
    follower      the thread that sends while a run is open
    following     what the extensions have in common that send metrics
    exporting     sends what the folder of a run has, at any time
"""
