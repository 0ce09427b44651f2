"""The checker reads the source of a class, finds mistakes in its hooks, and describes its stages.

The runtime does not need this package: ``Extensible.check`` and ``explain`` import it when they are called. It imports
the core and the standard library only. Its files in reading order; each imports only those above it:

    outline        the items of a method that concern stages and fixtures
    table          the stages that the methods of a loop open, written down as data
    method_source  the source of one method, and what its expressions stand for
    tree           the stages of a class, and the fixtures that may be alive at each
    reader         makes the outline of a method from its source
    methods        the methods of a class: which function a call finds, and the outline of it
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

The checker never runs the class. It takes every branch that it reads, so a fixture that may be alive counts as alive.

The loop of TrainManager is not read: ``stages.py`` has a table of it. Of a subclass, the checker reads the methods that
it overrides and adds; a method that it adds may be called while a run is held open, so the fixtures of the run count as
alive there. A class that derives from Extensible itself is read as a whole.

It understands:

- stages: ``with self.staged(...)``, and ``staged`` imported under any name. The name of the stage is a string, a
  constant of the module, a local variable that only assignments set, or ``a if b else c`` of these
- fixtures of a stage: dicts written where the stage opens, with ``**``, ``|``, ``dict(x=1)`` and ``a if b else c``
- reads and writes: ``self.fixtures["x"]``, assignments to it, ``define``, ``define_all``, ``setdefault``,
  ``update``, ``modify`` and ``get``; the same through a variable called ``fixtures``
- calls: ``self.method()``, also inherited and overridden ones; ``super().method()``; the getters of properties, cached
  properties; methods behind decorators that use ``functools.wraps``; ``self.call_by_name(self.method)``; and
  ``with self.run():`` of TrainManager
- all statements around these: conditions, loops (a name from one round is alive in the next), ``try``, ``match``,
  ``async``, recursion
- hooks: the fixtures that they declare, and fixtures that they write through ``fixtures`` or ``extensible``

It reports this code as unknown, and no mistake that depends on it:

- a stage whose name is made at run time, also as the ``stage`` of ``define``
- ``self.staged`` outside of a ``with`` statement or under another name
- ``self``, or a bound method that opens stages or defines fixtures, anywhere but in ``self.method(...)``: handed to
  other code, kept, or under another name (builtins are harmless to ``self``, except for those that take the name of an
  attribute or call what they get)
- a function or lambda inside of a method, a generator, and a context manager of one's own, if it opens stages or
  defines fixtures
- ``fixtures`` under another name, or handed to code that is not read; other methods of ``fixtures``
- code that runs as an attribute is set or read: the setter of a property, a ``partialmethod``, a
  ``singledispatchmethod``, a descriptor of the user's; a method called ``__private``
- a method without source, or with a decorator that opens stages or writes fixtures
- calls that take too many paths, or go too deep
- stages that code outside of the class opens, before the class itself is checked by hand or by a run

Unknown code that has the object may call any method, so any name may be alive in the stages of methods that only it may
call. A fixture whose name is made at run time, or of a dict that is made elsewhere, is not reported: any name may be
alive in that stage.
"""
