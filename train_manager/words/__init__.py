"""What other tools call the things of a TrainManager, and what each is called here: tables only.

``telling.words`` looks names up in them; the core and the checker get them with ``Options.words``. Its files in reading
order; each imports only those above it:

    fixtures      words for fixtures and stages, and the extensions that provide fixtures
    hooks         the names of hooks
    arguments     the arguments of TrainManager, and its methods
    torch_errors  what torch says of a mistake, and what helps
"""
