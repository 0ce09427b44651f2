"""Where the batches come from, and what they are made of.

Its files in reading order; each imports only those above it:

    iteration     walk over the batches of any data
    batch         what a batch is made of, and that it stays so
    row_batches   batches of row numbers, in an order by seed and epoch
    in_memory     batches of arrays that are already there
    rows          batches of data that gives its examples by row
    endless       data without an end
    interleaved   several sets of data in turns
    mixing        examples mixed with one another
"""
