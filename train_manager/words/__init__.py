"""Tables of the words of other tools, each with its counterpart in a TrainManager.

``telling.words`` looks names up in these tables; the core and the checker get them with ``Options.words``. Its files in
reading order; each imports only those above it:

    fixtures      words for fixtures and stages, and the extensions that provide fixtures
    hooks         the names of hooks
    arguments     the arguments of TrainManager, and its methods
    torch_errors  messages of torch about a mistake, and their cures
"""
