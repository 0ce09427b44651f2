"""The core: stages, scoped fixtures and hooks by name. Standard library only.

Its files in the order a value travels; each imports only those above it:

    outcome           the exception that comes out of a stage when several meet
    scope             an open stage as the owner of fixtures, and the cells of these
    messages          the errors about fixtures and stages
    store             the state: what is open, what is alive, which hook is being called
    fixtures          the mapping that users and hooks see
    declarations      the decorators above a hook or a fixture
    methods           the methods of an object, by name
    calls             the parameters of a function, and the call that gives it fixtures by name
    schedule          the decision when a hook runs
    hooks             hooks and providers, read from an object
    extension         the object that holds hooks
    watcher           an extension that is told what has run
    order             the order of the hooks at one point
    dispatch          the pre or the post hooks of a stage as one function
    plan              all that runs at one stage, decided once
    stage             the `with` block that opens a scope and runs hooks
    registry          the extensions of one Extensible, by name, also in an open run
    extensible        the class whose methods have stages
"""
