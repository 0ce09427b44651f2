"""Files that survive a crash and a second writer, and secrets that stay out of them.

Its files in reading order; each imports only those above it:

    atomic        files and folders that are there as a whole or not at all, and their names
    json_text     the value of a JSON text that may be damaged, and plain data as such a text
    json_values   Python values as JSON, and back
    secrets       passwords and keys: in a text, by their names, in files that must not be copied
    train_dirs    the folder for the files of extensions, and its replacement in a repeated run
    lock          one writer in a train_dir at a time
    moves         a train_dir that is moved out of the way
    leftovers     the deletion of folders, and of what killed processes have left
    background    writing in a thread while the run continues
"""
