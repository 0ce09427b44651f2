"""Extensible: the base class of a loop, whose methods have stages and whose extensions run hooks around them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from sys import _getframe
from threading import get_ident
from types import FrameType, MethodType
from typing import Any, Self, TypeVar, overload
from weakref import finalize

from train_manager.core.calls import NamedCall
from train_manager.core.extension import Extension, Extensions, free_name, name_extensions, require_extension
from train_manager.core.fixtures import Fixtures
from train_manager.core.hooks import Hook
from train_manager.core.methods import weakly
from train_manager.core.registry import Declared, Registry, load
from train_manager.core.schedule import load_states, states_of
from train_manager.core.stage import Stage
from train_manager.core.store import Options, Store
from train_manager.telling.errors import CheckError, HookError
from train_manager.telling.source_locations import line_of, site_of

R = TypeVar("R")
E = TypeVar("E", bound=Extension)


class Extensible:
    """Base class of the classes that can be extended without a change of their code.

    Its methods open stages around blocks of their code, and define fixtures; the hooks of extensions run before and
    after each stage and get the fixtures that they name:

    >>> from train_manager import Extensible, Extension
    >>> class Printer(Extension):
    ...     def pre_work(self, size):
    ...         print("before:", size)
    ...     def post_work(self, size, result):
    ...         print("after:", size, result)
    >>> class Worker(Extensible):
    ...     extensions = [Printer()]
    ...     def work(self):
    ...         with self.staged("work", {"size": 2}):
    ...             self.fixtures["result"] = 4
    >>> Worker().work()
    before: 2
    after: 2 4

    Its own methods named ``pre_<stage>``, ``post_<stage>`` and ``around_<stage>`` are hooks too, and run before the
    hooks of the extensions. As the first stage opens, mistakes in hooks are looked for as ``check`` does.

    Attributes:
        extensions: on the class, a list or dict to start with; on an object, a view of them by name.
        strict: on the class: hooks may write only what they declare with ``@provides`` or ``@modifies``.
        fixtures: the live fixtures.

    Args:
        extensions: added to the extensions of the class; one of the same name replaces the extension of the class.

    Raises:
        HookError: a hook could never be called as it is written, or something is not an extension.
    """

    # Each stage reads these attributes. Slots stay fast, while attributes in `__dict__` become slower for good as soon
    # as any code reads `__dict__` itself (CPython 3.11 and 3.12).
    __slots__ = (
        "__dict__",
        "__weakref__",
        "_checked",
        "_named_calls",
        "_registry",
        "_store",
        "_unopened",
        "fixtures",
    )

    extensions: Any = Declared("extensions", ())
    strict: Any = Declared("strict", False)
    fixtures: Fixtures

    _options = Options()
    """Set by a class with a loop of its own; an attribute of the class, so that it holds for copies too."""

    _store: Store
    _registry: Registry
    _checked: dict[str | None, list[str]]  # entry of a run -> what its check could not know; empty: check again
    _unopened: list[Hook]  # hooks for stages that the last check did not find in the source
    _named_calls: dict[Any, NamedCall]  # of own methods, by the plain function; each signature is read once

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # `extensions = [...]` and `strict = True` in the body of a class become descriptors, which refuse assignments
        # to an object: they would add no hook, and refuse no write.
        for name in ("extensions", "strict"):
            declared = cls.__dict__.get(name)
            if name in cls.__dict__ and not isinstance(declared, Declared):
                setattr(cls, name, Declared(name, declared))
        # `copy` calls only the first `__getstate__`: a copy would lack the extensions, or the state of the other base.
        for base in cls.__mro__:
            if "__getstate__" in vars(base) and not issubclass(base, Extensible) and base is not object:
                cure = f"hold a {base.__name__} as an attribute in place of deriving from it"
                raise TypeError(f"{cls.__name__} cannot derive from {base.__name__}, which has a __getstate__: {cure}")
        if not issubclass(next(base for base in cls.__mro__ if "__setstate__" in vars(base)), Extensible):
            # As `class Loop(nn.Module, Extensible)`: the `__setstate__` of Module would drop the extensions of a copy.
            cls.__setstate__ = Extensible.__setstate__  # type: ignore[method-assign]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # In `__new__`, so that a subclass whose `__init__` does not call `super().__init__` still has its state.
        self = super().__new__(cls)
        self._store = Store({}, cls._options, owner=self)
        # Cells and plans refer to the store, and the store to them. Unless they are emptied as the object dies, its
        # extensions, and a model that they hold, stay in memory until a garbage collection.
        for kept in (self._store.cells, self._store.plans):
            finalize(self, kept.clear).atexit = False
        self._store.strict = bool(cls.strict)
        self.fixtures = self._store.cells["fixtures"].value = Fixtures(self._store)
        self._named_calls = {}
        self._checked = {}
        self._unopened = []
        # Weakly, since a store that held its own Extensible would keep it alive.
        self._store.check_once = weakly(self._check_once, self)
        self._registry = Registry(self, self._store, weakly(self._approve_extensions, self))
        self._registry.add(name_extensions(cls.extensions, cls._options.words))
        self._begin_to_exist()
        return self

    def _begin_to_exist(self) -> None:
        """Do nothing; an override is called as the object is made, before any ``__init__``."""

    def __init__(self, extensions: Extensions | None = None) -> None:
        self._registry.add(name_extensions(extensions, self._options.words, self.extensions))

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to copy or pickle, with the extensions; the state of open stages is left out."""
        return {**self.__dict__, _KEPT: dict(self._registry.extensions)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        # `__new__` has made a registry with the extensions of the class. The extensions of the original replace them,
        # and their hooks are read anew. If a `__getstate__` of a subclass leaves these out, the first ones stay.
        extensions = state.pop(_KEPT, self._registry.extensions)
        self.__dict__.update(state)
        for name in self._registry.extensions.keys() - extensions.keys():
            self._registry.remove(name)
        self._registry.add(dict(extensions))

    def staged(
        self,
        name: str,
        fixtures: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> Stage:
        """Open a stage for a ``with`` block: ``with self.staged("train_step_batch", {"batch": batch}):``.

        Args:
            name: an identifier; hooks are named after it.
            fixtures: defined as the stage opens; they die with it.
            defaults: the same, but a name that is alive already is left out.

        Raises:
            FixtureExists: one of ``fixtures`` is alive already.
            StageError: a stage cannot have this name, or a hook of this object is running.
        """
        given = fixtures if defaults is None else {**self._store.absent(defaults, name), **(fixtures or {})}
        return Stage(name, self, self._store, given, _getframe(1))

    def call_by_name(self, function: Callable[..., R]) -> R:
        """Call a function with the live fixtures that its parameters name, as hooks are called.

        The signature of a method of this object is read once.

        Raises:
            FixtureNotFound: it names a fixture that is not alive.
        """
        store = self._store
        if store.thread != get_ident():
            store.require_own_thread()
        result: R = self._named_call(function)(store)
        return result

    def _named_call(self, function: Callable[..., Any]) -> NamedCall:
        """Return the call of a function by fixture names; the signature of an own method is read once."""
        if not isinstance(function, MethodType) or function.__self__ is not self:
            return NamedCall(function)
        known = self._named_calls.get(function.__func__)
        if known is None:
            call = NamedCall(function, f"{type(self).__name__}.{function.__name__}")
            # Kept by and for the plain function: a bound method in an attribute would keep this object alive.
            known = self._named_calls[function.__func__] = call.of(function.__func__)
        return known.of(function)

    def check(self, entry: str | None = None) -> list[str]:
        """Find mistakes in hooks and providers by reading the source of this class, before anything runs.

        Args:
            entry: the method that a run is entered by; then fixtures must be alive at points that it reaches.
                None stands for all methods that no other method calls.

        Returns:
            Descriptions of the code that the check could not follow: a stage whose name is made at run time, a method
            without source, other code that is given this object.

        Raises:
            CheckError: all mistakes at once: stages that do not exist, fixtures that are never alive where they
                are asked for, methods that look like hooks and are none, with the nearest names.
            ValueError: the class has no method ``entry``.
        """
        return self._check(entry, found_when="before the first stage")

    def _check(self, entry: str | None, found_when: str, *, outside: bool = False) -> list[str]:
        from train_manager.checker.check import check  # imported here: most programs import the core and never check

        self._unopened, unknown = check(
            type(self),
            self._registry,
            entry,
            found_when,
            known=self._store.always_there,
            options=self._options,
            strict=self.strict,
            outside=outside,
        )
        return unknown

    def _check_once(self) -> None:
        """Check as the first stage opens, and again after a change of the extensions.

        Of names that the class does not have, only those like one that it has are mistakes: the program may open
        ``worker.staged("report")`` later, and define fixtures there.
        """
        if self._registry.extensions or self._registry.hooks or self._registry.providers:
            try:
                self._checked[None] = self._check(None, "before the first stage", outside=True)
            except CheckError as error:
                raise error.with_traceback(None) from None  # the lines of the checker say nothing to users
        self._store.is_checked = True

    def explain(self, about: str | Extension | None = None, *, all: bool = False, format: str = "text") -> str:
        """Describe where hooks run, in which order and why; no stage is opened for it.

        The text has the stages with hooks of yours; if there are none, the stages with hooks of extensions that ship.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> last = tm.add_extension(post_eval_step_epoch=lambda eval_result: print(eval_result))
        >>> print(tm.explain())
        TrainManager
        run
        ├─ train
        │  ├─ eval
        │  │  └─ eval_step_epoch
        │  │        post   1. Hooks.post_eval_step_epoch of extension 'hooks'; reads eval_result
        │  └─ train_step_epoch
        │     └─ eval  (as above)
        └─ eval  (as above)
        left out: 13 of 18 stages, and all fixtures; explain(all=True) shows them

        Args:
            about: a fixture's name, for its life; an extension, or the name of one, for its doings; None for the
                stage tree.
            all: show each stage of the tree, with the fixtures that it defines, reads, changes and ends.
            format: "text"; "svg" for a picture of the whole tree, which a notebook shows; "json" of it, for tools; or
                "code" of the stage that ``about`` names: the functions that call its hooks.

        Raises:
            ValueError: another format, no stage given for its code, or ``about`` given for a picture.
        """
        from train_manager.checker.explain import explain

        return explain(type(self), self._registry, about, format, self._notes_on_stages(), all=all)

    def _notes_on_stages(self) -> Mapping[str, str]:
        """Return the notes that ``explain`` shows beside the names of stages; to be overridden."""
        return {}

    @overload
    def add_extension(self, extension: E, name: str | None = None) -> E: ...
    @overload
    def add_extension(
        self, extension: str | None = None, name: str | None = None, **hooks: Callable[..., Any]
    ) -> Extension: ...
    def add_extension(
        self, extension: Extension | str | None = None, name: str | None = None, **hooks: Callable[..., Any]
    ) -> Extension:
        """Add an extension, from the next stage that opens; on an error, nothing is changed.

        If it is added while a run of a TrainManager is open, it gets the run's lazy fixtures and its pre hooks before
        ``add_extension`` returns, also inside a hook. An error of such a pre hook removes it again, but does not bring
        back an extension that it has replaced.

        Args:
            extension: the object that holds the hooks; or the name under which an installed package offers one.
            name: ``self[name]`` returns it, and an extension of this name is replaced; None makes one from the class.
            hooks: functions instead of an object: ``add_extension(post_train_step_batch=lambda loss: ...)``.

        Returns:
            The extension, so that it can be made and kept in one line.

        Raises:
            HookError: one of its hooks could never be called.
            OrderError: nothing says in which order two hooks run.
            ExtensionNotFound: no installed package offers one of that name.
            StageError: a hook of a TrainManager's run itself adds it, while the run opens or ends.
        """
        if (extension is None) == (not hooks):
            raise HookError("add_extension takes an extension, or hooks by name", cure="pass one of the two")
        if isinstance(extension, str):
            name, extension = name or extension, load(extension)
        added = Extension.of(**hooks) if extension is None else require_extension(extension, self._options.words)
        self._registry.add({free_name(added, self.extensions) if name is None else name: added})
        return added

    @overload
    def remove_extension(self, extension: E) -> E: ...
    @overload
    def remove_extension(self, extension: str) -> Extension: ...
    def remove_extension(self, extension: str | Extension) -> Extension:
        """Remove an extension, by its name or as it was added, from the next stage that opens, and return it.

        If a run of a TrainManager is open, its post hooks of the run are called before ``remove_extension`` returns,
        and the fixtures that it has provided in the run die.

        Raises:
            ExtensionNotFound: none has this name.
            StageError: a hook of a TrainManager's run itself removes it, while the run opens or ends.
        """
        if isinstance(extension, Extension):
            names = (name for name, added in self._registry.extensions.items() if added is extension)
            extension = next(names, type(extension).__name__)
        return self._registry.remove(extension)

    # `Any`: a name does not say of which class the extension is; `extension(Class)` does.
    def __getitem__(self, name: str) -> Any:
        return self._registry.find_extension(name)

    def extension(self, kind: type[E]) -> E:
        """Return the extension of a class; an editor knows its methods and attributes then.

        >>> from train_manager import Extensible, Extension
        >>> class Largest(Extension):
        ...     value = 25
        ...     def post_work(self): ...
        >>> worker = Extensible([Largest()])
        >>> worker.extension(Largest).value, worker["largest"].value
        (25, 25)

        Args:
            kind: its class, or one that this is derived from.

        Raises:
            ExtensionNotFound: there is none of this class, or there are several, which have names.
            HookError: it is not a class.
        """
        return self._registry.sole(kind)

    def __contains__(self, name: object) -> bool:
        return name in self._registry.extensions

    def __repr__(self) -> str:
        return f"{type(self).__name__}(extensions=[{', '.join(self._registry.extensions)}])"

    def _ipython_key_completions_(self) -> list[str]:
        """Return the names that IPython offers after ``self["<TAB>``."""
        return [*self._registry.extensions]

    def _overrides(self, name: str, base: type) -> bool:
        """Return whether a method of the base is overridden in a class, or replaced on the object."""
        return self._function_of(name) is not vars(base)[name]

    def _function_of(self, name: str) -> Any:
        """Return the function of a method; None if the method was replaced on the object by another callable."""
        return getattr(getattr(self, name), "__func__", None)

    def _ready(self, name: str) -> Callable[[], Any]:
        """Return a call of a method by fixture names, for a loop that calls it often."""
        call = self._named_call(getattr(self, name))
        # A method without parameters needs no fixtures, and is called without a look at its names.
        return partial(call, self._store) if call.parameters or call.takes_rest else call.function

    def _schedule_states(self) -> dict[str, list[dict[str, Any]]]:
        """Return the states of the schedules of the object's own hooks."""
        return states_of(self)

    def _load_schedule_states(self, states: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Set the schedules of the object's own hooks to what ``_schedule_states`` returned."""
        load_states(self, states)

    def _approve_extensions(self) -> None:
        """Accept a change of the extensions; an override that raises takes the change back."""
        # The results of earlier checks are of other hooks.
        self._checked, self._unopened = {}, []
        self._store.is_checked = False


_KEPT = "_kept_extensions"  # a key of a copied or pickled state, beside the attributes


def staged(
    name: str,
    fixtures: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Stage:
    """Open a stage for a ``with`` block, as ``self.staged(...)`` does.

    >>> from train_manager import Extensible, staged
    >>> class Worker(Extensible):
    ...     def work(self):
    ...         with staged("work", {"size": 2}):
    ...             print(self.fixtures["stage"].path)
    >>> Worker().work()
    ('work',)

    Raises:
        HookError: it is not called in a method of an Extensible.
    """
    frame = _getframe(1)
    stage = _calling_extensible(frame).staged(name, fixtures, defaults)
    stage.code, stage.instruction = site_of(frame)  # `Extensible.staged` has noted the line above, not the user's
    return stage


def _calling_extensible(frame: FrameType) -> Extensible:
    """Return the ``self`` of the method that this frame runs, or that its function is nested in."""
    code = frame.f_code
    variables = frame.f_locals
    # The object is the first parameter, whatever it is called. A function inside a method has it as a free variable,
    # which is found only under the usual name.
    first = variables.get(code.co_varnames[0]) if code.co_argcount else None
    found = first if isinstance(first, Extensible) else variables.get("self")
    if sys.version_info < (3, 13) and code.co_flags & inspect.CO_OPTIMIZED:
        # Before Python 3.13, `f_locals` is a dict that stays with the frame. It would keep each local value of the
        # method, such as a batch, alive until the method returns.
        variables.clear()
    if isinstance(found, Extensible):
        return found
    raise HookError(
        f"{code.co_qualname} calls staged(...), but is not a method of an Extensible",
        name="staged",
        asked_by=code.co_qualname,
        asked_at=line_of(site_of(frame)),
        cure="write `extensible.staged(...)` with the object whose stage it is",
    )
