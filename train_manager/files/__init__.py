"""Files that survive a crash, a second writer and edits by hand.

Its files in reading order; each imports only those above it:

    atomic        files that are replaced as a whole, and paths in messages
    json_text     the value of a JSON text that may be damaged
    json_shape    the type that each place of a JSON file must have
    secrets       passwords and keys: in a text, by their names, in files that must not be copied
    train_dirs    the folder for the files of extensions, and its replacement in a repeated run
    lock          one writer in a train_dir at a time
    moves         folders that are moved out of the way, to a name that is free
    new_folder    folders that are there as a whole or not at all
    background    writing in a thread while the run continues
"""
