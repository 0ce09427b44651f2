"""A provided fixture: a method marked ``@fixture``, computed when somebody first asks for its name."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, final

from train_manager.core.decorators import declarations_of
from train_manager.core.errors import HookError, OrderError
from train_manager.core.methods import is_generator, method_names, refuse, refuse_uncallable, unbound
from train_manager.core.scope import Scope
from train_manager.core.signature import NamedCall
from train_manager.core.state import ALWAYS_THERE
from train_manager.core.store import Store

RESERVED = frozenset({*ALWAYS_THERE, "extensible"})


@final
@dataclass(frozen=True, slots=True)
class Provider:
    """One ``@fixture`` method, read and found callable.

    Attributes:
        name: the fixture.
        stage: the stage that owns it.
        owner: the extension's name; empty for a method of the Extensible itself.
        call: the method, its parameters read.
        cleans_up: it yields the value, and the rest runs when the stage ends.
        overrides: it takes the place of another provider of this name and stage.
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
        """A provider writes nothing but its own value."""
        return ()

    @property
    def whose(self) -> str:
        """``extension 'statistics'``, for messages."""
        return f"extension {self.owner!r}" if self.owner else "the extensible itself"


def read_providers(holder: object, owner: str) -> list[Provider]:
    """The ``@fixture`` methods of an object.

    Raises:
        HookError: one of them could never be called.
    """
    names = [name for name in method_names(holder) if declarations_of(unbound(holder, name)).fixture_of is not None]
    return [_read_provider(holder, name, owner) for name in names]


def chosen(providers: list[Provider]) -> dict[str, dict[str, Provider]]:
    """The provider of each name, by stage: the one that overrides the others, where there are several.

    Raises:
        OrderError: several provide one name in one stage, and none says that it overrides.
    """
    found: dict[str, dict[str, Provider]] = {}
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
                cure=f'remove one, or let one replace the other: @fixture("{provider.stage}", override=True)',
            )
        in_stage[provider.name] = provider
    return found


@final
class LazyFixture:
    """A provided fixture of one open stage, to be computed when it is first asked for."""

    __slots__ = ("_store", "provider", "scope")

    def __init__(self, provider: Provider, scope: Scope, store: Store) -> None:
        self.provider = provider
        self._store = store
        self.scope = scope

    def __call__(self) -> Any:
        """Compute the value from what is alive now, and make it the stage's own fixture.

        Raises:
            OrderError: it is being computed already: its parameters lead back to itself.
            FixtureNotFound: it asks for what is not alive, or for what lives shorter than itself.
        """
        provider, store = self.provider, self._store
        request = f"{provider.label} ({provider.call.defined_at})"
        if request in store.requests:
            raise self._cycle(request)
        with store.resolving(request, provider):
            for name in provider.call.parameters:
                store.require_life(name, self.scope, provider)
            value = provider.call(store)
            if provider.cleans_up:
                value = self._entered(value)
        store.set_computed(provider.name, value, self.scope, provider)
        return value

    def _entered(self, generator: Generator[Any, None, None]) -> Any:
        for value in generator:
            self.scope.add_extras().suspended.append((self.provider, generator))
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


def clean_up(provider: Provider, generator: Generator[Any, None, None]) -> None:
    """Run the part of a provider after its ``yield``.

    Raises:
        HookError: it yields again.
    """
    for _ in generator:
        generator.close()
        raise _misused(provider, "yields more than once")


def lazy_fixtures(providers: Mapping[str, Provider], scope: Scope, store: Store) -> dict[str, LazyFixture]:
    """Return the lazy fixtures of a stage that opens, by name."""
    return {name: LazyFixture(provider, scope, store) for name, provider in providers.items()}


def _read_provider(holder: object, name: str, owner: str) -> Provider:
    declarations = declarations_of(unbound(holder, name))
    assert declarations.fixture_of is not None, "read_providers has looked"
    refuse_uncallable(holder, name)
    if name in RESERVED:
        refuse(holder, name, f"provides {name!r}, which is always there", "take another name")
    call = NamedCall(getattr(holder, name), f"{type(holder).__name__}.{name}")
    return Provider(name, declarations.fixture_of, owner, call, is_generator(holder, name), declarations.overrides)


def _misused(provider: Provider, wrong: str) -> HookError:
    return HookError(
        f"{provider.label} {wrong}",
        name=provider.name,
        asked_by=provider.label,
        asked_at=provider.call.defined_at,
        cure="a fixture with clean-up has one `yield value`; the rest runs when the stage ends",
    )
