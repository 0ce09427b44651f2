"""What a run was and what it measured: ``run-<id>.json`` and ``metrics.sqlite``, written and read.

Its files in reading order; each imports only those above it:

    processes         which process it is, and whether it is still there
    packages          which packages are installed
    command           by which command a program was started, and the one that starts it again
    environment       where a program ran
    made_objects      the optimizers and schedulers that lambdas and functions have made
    run_file          run-<id>.json: what a run was, and how it has ended; written and read
    metric_schema     the tables of metrics.sqlite
    metric_segments   which rows of them count
    metric_blobs      arrays and histograms, as they are in columns
    metric_items      what waits to be written there
    batch_metrics     metrics made of the rows of batches
    metric_rows       rows on their way into the tables: their segments, and what they supersede
    metric_database   the file as its writer has it open: one transaction for each call
    background_writer metrics on their way into the file: a queue, and a thread
    metric_writer     the fixture `writer` of users' hooks
    metric_stretches  long series in a few numbers
    metric_news       what has come since the file was read last
    metric_reader     the metrics, read while a run writes them and long after
    run_notes         what another tool shows of a run beside its metrics
    run_paths         which run a path means, and which runs are below a folder
    run_summary       a run in a line
    loss_curves       the curves of LossCurves, of a training that is gone
    read_run          the folder of a training, read at any time
"""
