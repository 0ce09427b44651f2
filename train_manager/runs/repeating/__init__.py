"""A recorded run is run again, and its metrics are compared with the record.

Its files in reading order; each imports only those above it:

    comparing_metrics  where the metrics of two runs differ
    moved_paths        the paths of a repository as they are in a copy of it
    recorded_metrics   the metrics of a run, as they count in the end
    repeated_run       which run of the program that was run again is the recorded one
    lost_metrics       steps whose metrics a killed process did not write
    run_to_repeat      what is recorded of a run
    ownership          whether a record is the user's own
    reproduction       what a run that was run again has come to
    restored_code      its code in a folder of its own
    surroundings       what differs around two runs
    introduction       what is said of it before it is run again
    repeated_command   how the program of a run is started again
    watched_program    a program in a process of its own
    unrecorded_inputs  what a program reads that no record has
    reproduce          a recorded run is run again, and compared
"""
