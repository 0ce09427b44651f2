"""What differs between runs: in their code, arguments, surroundings and metrics, as lines and tables.

Its files in reading order; each imports only those above it:

    columns           a table with a column for each run
    run_list          runs, a line for each
    compared          what a comparison of runs has found
    comparison_lines  a comparison as lines
    run_metrics       the metrics of a run, from its folder
    compare_runs      what differs between runs
"""
