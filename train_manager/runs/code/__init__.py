"""Which code a run used: taken from a repository as it is, and put back elsewhere.

Its files in reading order; each imports only those above it:

    notebook        the cells of a notebook that ran, as a script
    modules         the script and its own modules, and where the source of a package lies
    git             git, run so that it asks nothing, changes nothing and ends in time
    facts           what a repository says of itself
    git_folder      a git folder of our own over the files of others
    store           the git folder of a train_dir, which keeps each content once
    left_out        folders that runs write, what is too large, names that lead out
    record          the form of a record: its parts, written and read
    working_tree    which files of a repository may differ from its commit
    snapshot        the files of a folder, as git has read them
    take            the code of a run, recorded
    restore         the code of a run, put back
    differences     where the code of two runs differs
"""
