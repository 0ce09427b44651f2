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
    """A ``@fixture`` method whose signature and declarations have been read."""

    name: str  # of the method, and of the fixture
    stage: str  # the stage that owns the fixture
    owner: str  # the name of the extension; empty for a method of the Extensible itself
    call: NamedCall  # calls the method with fixtures
    cleans_up: bool  # the method yields the value, and its rest runs when the stage ends
    overrides: bool  # it replaces another provider of this name and stage
    collective: bool  # all processes that train together compute the value at once

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


def choose_providers(providers: list[Provider]) -> dict[str, dict[str, Provider]]:
    """Return the provider of each name, by stage; of several, the one that overrides the others."""
    found: dict[str, dict[str, Provider]] = {}
    # Sorted, so that an overriding provider finds the other one there, whatever the order of registration.
    for provider in sorted(providers, key=lambda provider: provider.overrides):
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
    if first.label == second.label:  # two extensions of one class
        return f"let one {first.label.partition('.')[0]} do what both do"
    return f'remove one, or let one replace the other: @fixture("{second.stage}", override=True)'


@final
class LazyFixture:
    """The lazy fixture of a provider, in any open stage that owns it: computed when it is first asked for.

    One object serves all openings of its stage: the cell of the fixture knows the open stage that owns it.
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
        # While the provider runs, errors about fixtures and stages name it, and not the hook that asks.
        before, depth = store.running, len(store.requests)
        try:  # not a context manager: Ctrl-C could come between its entry and the block, or on the way out
            # The chain in an error begins with the hook that has asked for the first of the lazy fixtures.
            store.requests += [_request(before)] if before is not None and not depth else []
            store.requests.append(request)
            store.running = provider
            value = self._compute_value(scope)
        except BaseException as error:
            store.running = before  # first, since Ctrl-C may come at the call in the next line
            error.add_note(f"in fixture {request}")
            raise
        finally:
            store.running = before  # first, since Ctrl-C may come again, and `requests` matters for messages only
            del store.requests[depth:]
        store.set_computed(provider.name, value, scope, provider)
        return value

    def _compute_value(self, scope: Scope) -> Any:
        provider, store = self.provider, self._store
        # Before the call, which would first compute other lazy fixtures, and then fail.
        for name in provider.call.parameters:
            store.require_life(name, scope, provider)
        value = provider.call(store)
        return self._first(value, scope) if provider.cleans_up else value

    def _first(self, generator: Generator[Any, None, None], scope: Scope) -> Any:
        """Return the value that the provider yields; the rest of it runs when the stage ends."""
        for value in generator:  # the first round only; a loop, since `next` raises at a generator without a `yield`
            scope.add_extras().suspended.append((self.provider, generator))
            return value
        raise _misuse_error(self.provider, "did not yield a value")

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
    """Return a line of the chain of requests that an error shows."""
    return f"{caller.label} ({caller.call.defined_at})"


def clean_up(provider: Provider, generator: Generator[Any, None, None]) -> None:
    """Run the rest of a provider after its ``yield``."""
    for _ in generator:  # a second `yield`
        generator.close()
        raise _misuse_error(provider, "yields more than once")


def _read_provider(holder: object, name: str, owner: str) -> Provider:
    declarations = declarations_of(unbound(holder, name))
    assert declarations.fixture_of is not None, "read_providers has looked"
    refuse_uncallable(holder, name)
    if name in (*ALWAYS_THERE, "extensible"):
        refuse(holder, name, f"provides {name!r}, which is always there", "take another name")
    call = NamedCall(getattr(holder, name), f"{type(holder).__name__}.{name}")
    if not owner:  # the Extensible holds its own providers: bound strongly, they would keep it alive until a collection
        call.function = weakly(call.function, holder)
    cleans_up, overrides, collective = is_generator(holder, name), declarations.overrides, declarations.collective
    return Provider(name, declarations.fixture_of, owner, call, cleans_up, overrides, collective)


def _misuse_error(provider: Provider, wrong: str) -> HookError:
    cure = "a fixture with clean-up must have one `yield value`; the rest runs when the stage ends"
    return provider.call.error(wrong, provider.name, cure)
