"""A recorded run is run again, and its metrics are compared with the record.

Its files in reading order; each imports only those above it:

    metrics           the metrics of two runs, and where they differ
    repeated_run      which run of the program that was run again is the recorded one
    run_to_repeat     what is recorded of a run
    reproduction      what a run that was run again has come to
    paths             the paths of a repository as they are in a copy of it
    restored_code     the code of a run, in a folder of its own
    surroundings      what differs around two runs
    repeated_command  how the program of a run is started again
    program           a program in a process of its own
    reproduce         a recorded run is run again, and compared
"""
