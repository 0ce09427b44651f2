"""What differs between runs: in their code, arguments, surroundings and metrics, as lines and tables.

Its files in reading order; each imports only those above it:

    run_list      runs, a line for each
    code_lines    how the code of two runs differs, as lines
    comparison    what a comparison of runs has found, as data and as text
    measured      what a run has measured, from its store
    run_facts     what the records of a run tell of it, in sections
    compare_runs  what differs between runs
"""
