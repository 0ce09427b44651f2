"""Providers: the ``@fixture`` methods, whose values are computed when they are first asked for."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, final

from train_manager.core.decorators import declarations_of
from train_manager.core.methods import is_generator, method_names, refuse, refuse_uncallable, unbound
from train_manager.core.scope import Caller, Scope
from train_manager.core.signature import NamedCall
from train_manager.core.state import ALWAYS_THERE
from train_manager.core.store import Store
from train_manager.core.weakly import weakly
from train_manager.telling.errors import HookError, OrderError


@final
@dataclass(frozen=True, slots=True)
class Provider:
    """A ``@fixture`` method whose signature and declarations have been read.

    Attributes:
        name: the fixture.
        stage: the stage that owns it.
        owner: the extension's name; empty for a method of the Extensible itself.
        call: calls the method with fixtures.
        cleans_up: it yields the value, and the rest runs when the stage ends.
        overrides: it replaces another provider of this name and stage.
    """

    name: str
    stage: str
    owner: str
    call: NamedCall
    cleans_up: bool
    overrides: bool

    @property
    def label(self) -> str:
        """``Statistics.norm``, for messages."""
        return self.call.label

    @property
    def written(self) -> tuple[str, ...]:
        """Nothing: a provider must not write other fixtures."""
        return ()

    @property
    def whose(self) -> str:
        """``extension 'statistics'``, for messages."""
        return f"extension {self.owner!r}" if self.owner else "the extensible itself"


def read_providers(holder: object, owner: str) -> list[Provider]:
    """Return the providers of an object, in the order in which they are written."""
    names = [name for name in method_names(holder) if declarations_of(unbound(holder, name)).fixture_of is not None]
    return [_read_provider(holder, name, owner) for name in names]


def chosen(providers: list[Provider]) -> dict[str, dict[str, Provider]]:
    """Return the provider of each name, by stage; of several, the one that overrides the others."""
    found: dict[str, dict[str, Provider]] = {}
    for provider in sorted(providers, key=lambda provider: provider.overrides):  # last, those that replace others
        in_stage = found.setdefault(provider.stage, {})
        other = in_stage.get(provider.name)
        if other is not None and (other.overrides or not provider.overrides):
            raise OrderError(
                f"{other.label} and {provider.label} both provide {provider.name!r} in stage {provider.stage!r}",
                name=provider.name,
                asked_by=provider.label,
                asked_at=provider.call.defined_at,
                defined_at=other.call.defined_at,
                cure=_cure_of_two(other, provider),
            )
        in_stage[provider.name] = provider
    return found


def _cure_of_two(first: Provider, second: Provider) -> str:
    if first.label == second.label:
        return f"let one {first.label.partition('.')[0]} do what both do"
    return f'remove one, or let one replace the other: @fixture("{second.stage}", override=True)'


@final
class LazyFixture:
    """The lazy fixture of a provider, in any open stage that owns it: computed when it is first asked for.

    One object serves all openings of its stage: it finds the owner by the cell.
    """

    __slots__ = ("_store", "provider")

    def __init__(self, provider: Provider, store: Store) -> None:
        self.provider = provider
        self._store = store

    def __call__(self) -> Any:
        """Compute the value from the live fixtures, and make it a fixture of the stage."""
        provider, store = self.provider, self._store
        request = _request(provider)
        if request in store.requests:
            raise self._cycle(request)
        scope: Scope = store.cells[provider.name].owner
        before, depth = store.running, len(store.requests)
        try:  # not a context manager: Ctrl-C could come on the way into it, or out of it
            store.requests += [_request(before)] if before is not None and not depth else []
            store.requests.append(request)
            store.running = provider
            value = self._computed(scope)
        except BaseException as error:
            store.running = before
            error.add_note(f"in fixture {request}")
            raise
        finally:
            store.running = before  # first: the rest is only for messages
            del store.requests[depth:]
        store.set_computed(provider.name, value, scope, provider)
        return value

    def _computed(self, scope: Scope) -> Any:
        provider, store = self.provider, self._store
        for name in provider.call.parameters:  # before the call, which would compute some of them
            store.require_life(name, scope, provider)
        value = provider.call(store)
        return self._first(value, scope) if provider.cleans_up else value

    def _first(self, generator: Generator[Any, None, None], scope: Scope) -> Any:
        """Return the value that the provider yields; the rest of it runs when the stage ends."""
        for value in generator:
            scope.add_extras().suspended.append((self.provider, generator))
            return value
        raise _misused(self.provider, "did not yield a value")

    def _cycle(self, request: str) -> OrderError:
        requests = self._store.requests
        return OrderError(
            f"{self.provider.label} asks for itself in a cycle",
            name=self.provider.name,
            asked_by=self.provider.label,
            asked_at=self.provider.call.defined_at,
            requests=(*requests[requests.index(request) :], request),
            stages=self._store.path,
            cure="let one of them be computed without the others",
        )


def _request(caller: Caller) -> str:
    return f"{caller.label} ({caller.call.defined_at})"


def clean_up(provider: Provider, generator: Generator[Any, None, None]) -> None:
    """Run the part of a provider after its ``yield``."""
    for _ in generator:
        generator.close()
        raise _misused(provider, "yields more than once")


def _read_provider(holder: object, name: str, owner: str) -> Provider:
    declarations = declarations_of(unbound(holder, name))
    assert declarations.fixture_of is not None, "read_providers has looked"
    refuse_uncallable(holder, name)
    if name in (*ALWAYS_THERE, "extensible"):
        refuse(holder, name, f"provides {name!r}, which is always there", "take another name")
    call = NamedCall(getattr(holder, name), f"{type(holder).__name__}.{name}")
    if not owner:
        call.function = weakly(call.function, holder)
    return Provider(name, declarations.fixture_of, owner, call, is_generator(holder, name), declarations.overrides)


def _misused(provider: Provider, wrong: str) -> HookError:
    cure = "a fixture with clean-up must have one `yield value`; the rest runs when the stage ends"
    return provider.call.error(wrong, provider.name, cure)
