"""The batches of a training: their content, how data is read, and data that makes batches of examples.

Its files in reading order; each imports only those above it:

    random_state  seed, keep and put back the random states; the seeds of examples
    batch         the inputs and targets of a batch, its device and structure; data in a few words
    cures         notes on errors of torch, by the tensors of the batch
    readable      reading data: which batch is the last, and where an epoch begins
    shares        what one of several processes reads of each batch; which data they can share
    passes        passes over numbered examples, whose position is a few numbers; batches of row numbers
    in_memory     batches of arrays
    rows          batches of datasets, data frames and columns
    seeded_dataset  order and random numbers by seed, epoch and example
    seeded_loader   a DataLoader with both, which knows its position
    loader_position  where a DataLoader is in its pass, and whether that is known
    fingerprint   what data is made of, in a few numbers
    landmarks    digests of some batches of a pass: whether it gives the same when it is read again
    reader       one set of data, read pass after pass; a pass that moves nothing, for evaluations
    named_sets    the base of Interleaved and Together: sets by name, each with a reader; data without an end
    interleaved   several sets of data in turns
    together      several sets of data at once
    mixing        examples that are blended with one another
"""
