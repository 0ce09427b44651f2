"""The core: stages, scoped fixtures and hooks by name. Standard library only.

Its files in the order a value travels; each imports only those above it:

    errors        what can go wrong, and how it is told
    source        where something stands in the source
    skip          the wish to leave a stage out
    scope         one open stage as the owner of names
    fixtures      the values that are alive
    signature     what a function asks for by name
    hook          one pre_, post_ or around_ method
    extension     the object that holds hooks
    plan          what runs at one stage, decided once
    failures      which exception comes out when several meet
    around        a hook that is entered before the stage and left after it
    stage         the `with` block that does it all
    extensible    the class whose methods have stages
"""
