"""Which code a run used: taken from a repository as it is, and put back elsewhere.

Its files in reading order; each imports only those above it:

    notebook_cells  the cells of a notebook that ran, as a script
    loaded_modules  the script and its own modules, where there is no repository
    source_folders  where the source of an installed package lies
    git_commands    git, run so that it asks nothing, changes nothing and ends in time
    repository      what a repository says of itself
    clean_room      a git folder of our own over the files of others
    changes         which files differ from the commit, and which are new
    lfs             pointers of git LFS
    reading         what a file is at this moment
    placing         files written below a folder, and never outside of it
    store           what records keep: each content once
    conversions     files that git calls unchanged although their bytes are others
    patch_text      a patch as lines: what goes, and what comes in its place
    diff_text       how files differ from the commit, as text for people
    submodules      repositories inside of a repository
    outputs         folders that runs write, or with too many files
    collecting      what a repository's commit does not have: kept, or named
    old_payload     what records of version 1 keep
    recorded_files  what a record holds of a repository
    taking          the code of a run, recorded
    restoring       the code of a run, put back
    commit_files    what a commit holds
    versions        the version of a repository that a run had
    differences     where the code of two runs differs
"""
