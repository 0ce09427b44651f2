"""Processes that train together: how they meet, agree, share gradients and parameters, and how a failure is reported.

Its files in reading order; each imports only those above it:

    environment   the place of this process, as torchrun says it, and its GPU
    connections   those of a process group, which a process that fails shuts
    failures      which process has failed, ended, or not come
    process_group  messages between the processes
    joined        the processes, as a TrainManager sees them
    gradients     gradients that are made one
    sharded       parameters of which each process has a shard
"""
