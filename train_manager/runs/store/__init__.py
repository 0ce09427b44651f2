"""What a run measured: ``metrics.sqlite``, written while it trains, and read at any time.

Its files in reading order; each imports only those above it:

    schema        the tables of metrics.sqlite, and which of their rows count for a run
    priorities    the order of hooks `post_run` around the end of the store
    rows          a row as Python sees it, and as it is in columns
    batches       metrics made of the rows of batches
    parts         the parts of a run, and the rows that are written into them
    database      the file as its writer has it open: one transaction for each call
    thread        metrics on their way into the file: a queue, and a thread
    writer        the fixture `writer` of users' hooks
    training      what a TrainManager appends to the queue
    reader        the metrics, read while a run writes them and long after
    curves        long series in a few points
    delivery      the rows of a run on their way to another tool
    sinks         extensions that send them there
"""
