"""The core: stages, scoped fixtures and hooks by name. Standard library only.

Its files in the order a value travels; each imports only those above it:

    errors        what can go wrong, and how it is told
    source        where something stands in the source
    skip          the wish to leave a stage out
    cell          the place of one fixture
    scope         one open stage as the owner of names
    strand        the thread and the task that is running
    state         which scopes are open, what is alive, who is being called
    refusals      the words for what is refused
    store         all changes of the state
    fixtures      the mapping that users and hooks see
    signature     what a function asks for by name
    marks         the decorators of hooks
    methods       the methods of an object, by name
    gate          what lets a hook run only now and then
    hook          one pre_, post_ or around_ method
    provider      one fixture on demand
    extension     the object that holds hooks
    outside       extensions of other packages
    sharing       which Extensibles an extension serves
    order         which hook runs before which
    side          the pre or the post hooks of a stage as one function
    plan          what runs at one stage, decided once
    declared      the class attribute `extensions`
    registry      the extensions of one Extensible, by name
    writes        what becomes of a hook's return value
    failures      which exception comes out when several meet
    around        a hook that is entered before the stage and left after it
    stage         the `with` block that does it all
    literals      what a piece of source stands for
    outline       what a method does with stages, read from its source
    tree          the stages of a class, walked without running them
    check         mistakes found before the first stage
    explain       what runs where and why
    extensible    the class whose methods have stages
"""
