"""The core: stages, scoped fixtures and hooks by name. Standard library only.

Its files in the order a value travels; each imports only those above it:

    outcome           the exception that comes out of a stage when several meet
    scope             an open stage as the owner of fixtures
    state             the open scopes, the live fixtures, the hook that is being called
    messages          the errors about fixtures and stages
    store             all changes of the state
    fixtures          the mapping that users and hooks see
    signature         the parameters of a function, and the call that gives it fixtures by name
    weakly            the methods of an object as it may hold them itself
    decorators        the declarations above a hook or a fixture
    methods           the methods of an object, by name
    schedule          the decision when a hook runs
    hooks             pre_, post_ and around_ methods
    lookalikes        methods that look like hooks but are never called
    providers         the methods that compute lazy fixtures
    extension         the object that holds hooks
    order             the order of the hooks at one point
    dispatch          the pre or the post hooks of a stage as one function
    plan              all that runs at one stage, decided once
    hook_calls        around-hooks, and the writing of return values
    sharing           the Extensibles that have one extension object
    stage             the `with` block that opens a scope and runs hooks
    joining           the extensions that come or go while a run is open
    registry          the extensions of one Extensible, by name
    extensible        the class whose methods have stages
"""
