"""The checker reads the source of a class, finds mistakes in its hooks, and describes its stages.

The runtime does not need this package: ``Extensible.check`` and ``explain`` import it when they are called. It imports
the core and the standard library only. Its files in reading order; each imports only those above it:

    method_source  the source of one method, and what its expressions stand for
    outline        the items of a method that concern stages and fixtures
    tree           the stages of a class, and the fixtures that may be alive at each
    known          the outlines and trees of a class, kept until the class changes
    reader         makes the outline of a method from its source
    hook_writes    the fixtures that a hook writes beside those it declares
    walk           follows the outlines through all method calls and fills the tree
    too_late       points at which a fixture is modified too late
    left_out       why a stage of a base class never opens in a subclass
    lookalikes     methods that look like hooks or overrides, but that nothing calls
    advice         the cure for a fixture that is not alive
    mistakes       compares hooks and providers with the tree
    check          one error with all mistakes, or a list of code that cannot be followed
    picture        the stages and their hooks as a picture
    explain        the hooks of each stage, with their order and its reasons, as text, data or picture

The checker never runs the class. It takes every branch that it reads, so a fixture that may be alive counts as alive;
of a condition on the path of open stages it takes the branch that fits.

It understands:

- stages: ``with self.staged(...)``, and ``staged`` imported under any name. The name of the stage is a string, a
  constant of the module, a local variable that only assignments set, or ``a if b else c`` of these
- fixtures of a stage: dicts written in the source, with ``**``, ``|``, ``dict(x=1)`` and ``a if b else c``, and local
  dicts with the keys added to them, or of a ``TypedDict`` that a method returns
- reads and writes: ``self.fixtures["x"]``, assignments to it, ``define``, ``define_all``, ``setdefault``,
  ``update``, ``modify`` and ``get``; the same through a variable called ``fixtures``
- calls: ``self.method()``, also inherited and overridden ones; ``super().method()``; the getters of properties, cached
  properties; methods behind decorators that use ``functools.wraps``; ``self.call_by_name(self.method)``, and
  ``self.chosen.method()`` if ``Words.called_by`` names that attribute
- functions as values: bound methods handed to other code; bound methods, nested functions and lambdas in a local
  variable
- generators: ``for`` loops and comprehensions over a generator method, also through ``enumerate`` or a local variable;
  ``yield from self.method()``; context managers made by methods; methods that return either
- conditions on the path of stages: ``if "eval" in self.fixtures.path``, ``not in``, ``elif``, ``a if b else c``; a
  branch that returns ends the method there, and one that raises ends the way that led to it, up to a ``try`` or
  another context manager. A method that wants an outermost stage to be open is followed inside of it too
- all statements around these: conditions, loops (a name from one round is alive in the next), ``try``, ``match``,
  ``async``, recursion
- hooks: the fixtures that they declare, and fixtures that they write through ``fixtures`` or ``extensible``

It reports this code as unknown, and no mistake that depends on it:

- a stage whose name is made at run time, also as the ``stage`` of ``define``
- ``self.staged`` outside of a ``with`` statement or under another name
- ``self`` or ``fixtures`` under another name, or handed to code that is not read (builtins are harmless, except for
  ``getattr`` and ``setattr``); ``with self``, ``for _ in self``, ``self()``; other methods of ``fixtures``
- a bound method kept on the object, also in a list, a dict or a ``partial``
- code that runs as an attribute is set or read: the setter of a property, a ``partialmethod``, a
  ``singledispatchmethod``, a descriptor of the user's; a method called ``__private``
- a generator that is advanced with ``next``; two generators in one loop
- a method without source, or with a decorator that opens stages or writes fixtures
- calls that take too many paths, or go too deep
- stages that code outside of the class opens, before the class itself is checked by hand or by a run

Unknown code that has the object may call any method, so any name may be alive in the stages of methods that only it may
call. A fixture whose name is made at run time is not reported: any name may be alive in that stage.
"""
