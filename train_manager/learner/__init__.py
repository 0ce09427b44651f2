"""A learner from files: data and model are described, and mistakes are reported with their lines.

Its files in reading order; each imports only those above it:

    places       the line of each key of a TOML text
    reading      the tree of a file or of a dict
    description  a tree with its places, and mistakes that are reported at once
    checks       the keys of a table, and the types of its values
"""
