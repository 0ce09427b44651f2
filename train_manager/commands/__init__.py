"""The command line: a file for each command of ``train-manager``.

A file adds its command to the parser with ``add_to``. The command's function prints for people, unless ``--json`` is
given; it returns an ``Answer``, and imports what it needs, so that the other commands stay fast. Its files in reading
order; each imports only those above it:

    exit_codes     the exit codes of all commands
    answer         what a command gives back: its exit code, and its data for --json
    show           what is in a checkpoint
    check          whether the checkpoints of a training are sound
    runs           which runs are below a folder
    compare        what differs between runs
    report         a run as a page
    export         the metrics of a run, sent to another tool
    reproduce      whether a recorded run gives the same metrics again
    verify_resume  whether a script resumes exactly
    tune           what makes the steps of a script's training faster
    skill          how an agent works with this library
"""
