"""Files that survive a crash, a second writer and a stranger's hands, whatever is in them.

Its files in reading order; each imports only those above it:

    atomic        files that are replaced as a whole, and how paths are told
    strict_json   JSON that is read strictly
    json_shape    what JSON must have at each place
    secret_forms  the forms of keys and tokens
    secret_names  which names are those of passwords and keys
    secrets       passwords and keys in a text
    train_dirs    the folder for the files of extensions, and what takes its place
    lock          one writer in a train_dir at a time
    moves         folders that are moved out of the way, to a name that is free
    background    writing in a thread while the training goes on
"""
