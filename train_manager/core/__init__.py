"""The core: stages, scoped fixtures and hooks by name. Standard library only.

Its files in the order a value travels; each imports only those above it:

    errors        what can go wrong, and how it is told
    locations     where something stands in the source
    outcome       which exception comes out of a stage
    scope         one open stage as the owner of fixtures
    affinity      the thread and the task that stages belong to
    state         which scopes are open, what is alive, who is being called
    messages      the words for what is refused
    store         all changes of the state
    fixtures      the mapping that users and hooks see
    signature     what a function asks for by name
    decorators    what stands above a hook
    methods       the methods of an object, by name
    schedule      what lets a hook run only now and then
    hooks         pre_, post_ and around_ methods
    providers     fixtures that are computed when they are asked for
    extension     the object that holds hooks
    order         which hook runs before which
    dispatch      the pre or the post hooks of a stage as one function
    plan          what runs at one stage, decided once
    callers       what runs around a hook, and what becomes of its return value
    registry      the extensions of one Extensible, by name
    stage         the `with` block that does it all
    extensible    the class whose methods have stages
"""
