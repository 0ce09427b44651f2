"""The derived order: who provides runs before who modifies, before who reads, whatever the order of registration."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.rotation import share_of
from train_manager import Extensible, Extension, fixture, modifies, priority, provides
from train_manager.errors import OrderError

At = Callable[[str], str]


class Grads(Extension):
    @provides("norm")
    def post_step(self, x: float) -> float:
        return 2 * x


class Clip(Extension):
    @modifies("norm")
    def post_step(self, norm: float) -> float:
        return min(norm, 5.0)


class Ratio(Extension):
    @provides("ratio")
    def post_step(self, norm: float, x: float) -> float:
        return norm / x


class Curve(Extension):
    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []

    def post_step(self, ratio: float, norm: float) -> None:
        self.seen.append((ratio, norm))


class Loop(Extensible):
    """One stage with an x."""

    def step(self, x: float = 4.0) -> None:
        with self.staged("step", {"x": x}):
            pass


def order_of(extensible: Extensible, kind: str = "post") -> list[str]:
    return [hook.owner for hook in getattr(extensible._registry.plans["step"], kind)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_every_order_of_registration_gives_one_order_and_equal_numbers(order: Sequence[int]) -> None:
    curve = Curve()
    four = [("grads", Grads()), ("clip", Clip()), ("ratio", Ratio()), ("curve", curve)]
    loop = Loop(dict(four[index] for index in order))
    assert order_of(loop) == ["grads", "clip", "ratio", "curve"]
    loop.step()
    assert curve.seen == [(1.25, 5.0)]


def test_asking_for_a_provided_fixture_reads_all_that_it_asks_for() -> None:
    class Doubled(Extension):
        @fixture("step")
        def doubled(self, tripled: float) -> float:
            return 2 * tripled

        @fixture("step")
        def tripled(self, norm: float) -> float:
            return 3 * norm

    seen: list[float] = []
    loop = Loop([Extension.of(post_step=lambda doubled: seen.append(doubled)), Doubled(), Clip(), Grads()])
    assert order_of(loop) == ["grads", "clip", "hooks"]
    loop.step()
    assert seen == [30.0]


def test_kwargs_read_all_that_is_written() -> None:
    seen: list[dict[str, float]] = []
    Loop([Extension.of(post_step=lambda **rest: seen.append(rest)), Clip(), Grads()]).step()
    assert seen == [{"x": 4.0, "norm": 5.0}]


def test_a_parameter_with_a_default_is_read() -> None:
    loop = Loop([Extension.of(post_step=lambda norm=0: None), Grads()])
    assert order_of(loop) == ["grads", "hooks"]


def test_what_nothing_orders_runs_by_priority_and_then_as_registered() -> None:
    class Plain(Extension):
        def __init__(self, rank: int) -> None:
            self.priority = rank

        def post_step(self) -> None: ...

    ranks = {"a": 0, "b": -10, "c": 0, "d": 5, "e": -10}
    assert order_of(Loop({name: Plain(rank) for name, rank in ranks.items()})) == ["b", "e", "a", "c", "d"]


def test_what_is_read_goes_before_priority() -> None:
    class Early(Extension):
        priority = -100

        def post_step(self, norm: float) -> None: ...

    assert order_of(Loop([Early(), Grads()])) == ["grads", "early"]


class First(Extension):
    @modifies("x")
    @priority(-1)
    def post_step(self, x: float, slow: float = 0) -> float:
        return x + 1


class Second(Extension):
    @modifies("x")
    def post_step(self, x: float) -> float:
        return 10 * x


class Slow(Extension):
    @provides("slow")
    def post_step(self) -> float:
        return 1.0


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_priority_orders_two_modifiers_even_where_the_first_waits_for_another_hook(order: Sequence[int]) -> None:
    three = [First(), Second(), Slow()]
    loop = Loop([three[index] for index in order])
    seen: list[float] = []
    loop.add_extension(post_step=lambda x: seen.append(x))
    loop.step(1.0)
    assert seen == [20.0]


def test_the_extensibles_own_modifier_comes_before_that_of_an_extension() -> None:
    class Own(Loop):
        @modifies("x")
        def post_step(self, x: float) -> float:
            return x + 1

    seen: list[float] = []
    own = Own([Second(), Extension.of(post_step=lambda x: seen.append(x))])
    own.step(1.0)
    assert seen == [20.0]


def test_two_modifiers_that_a_chain_of_reads_orders_are_no_conflict() -> None:
    class Flags(Extension):
        @modifies("x")
        @provides("marked")
        def post_step(self, x: float) -> tuple[float, bool]:
            return x + 1, True

    class After(Extension):
        @modifies("x")
        def post_step(self, x: float, marked: bool) -> float:
            return 10 * x

    for extensions in ([Flags(), After()], [After(), Flags()]):
        assert order_of(Loop(extensions)) == ["flags", "after"]


# ---- refused -------------------------------------------------------------------------------------------------------


def test_two_modifiers_that_nothing_orders_are_refused(at: At) -> None:
    class Halve(Extension):
        @modifies("x")  # halve
        def pre_step(self, x: float) -> float:
            return x / 2

    class Square(Extension):
        @modifies("x")  # square
        def pre_step(self, x: float) -> float:
            return x * x

    loop = Loop([Halve()])
    with pytest.raises(OrderError) as error:
        loop.add_extension(Square())
    assert str(error.value) == (
        "Halve.pre_step (extension 'halve') and Square.pre_step (extension 'square') both modify 'x' at pre_step, "
        "and nothing says which is first\n"
        f"  defined at   {at('halve')}\n"
        f"  asked at     {at('square')}\n"
        "  say which is first: @priority(-1) on it, or `priority` on its extension"
    )


def test_two_providers_are_refused_even_on_different_sides(at: At) -> None:
    class Early(Extension):
        @provides("norm")  # early
        def pre_step(self) -> float:
            return 1.0

    class Late(Extension):
        @provides("norm")  # late
        def post_step(self) -> float:
            return 1.0

    loop = Loop([Early()])
    with pytest.raises(OrderError) as error:
        loop.add_extension(Late())
    assert str(error.value) == (
        "Early.pre_step (extension 'early') and Late.post_step (extension 'late') both provide 'norm' in stage 'step'\n"
        f"  defined at   {at('early')}\n"
        f"  asked at     {at('late')}\n"
        "  remove one of them, or let one modify the other's value: @modifies"
    )


def test_a_hook_and_a_fixture_on_demand_of_one_name_are_refused() -> None:
    class OnDemand(Extension):
        @fixture("step")
        def norm(self) -> float:
            return 1.0

    for extensions in ([Grads(), OnDemand()], [OnDemand(), Grads()]):
        with pytest.raises(OrderError, match=r"OnDemand.norm .* and Grads.post_step .* both provide 'norm'"):
            Loop(extensions)


def test_two_providers_from_inner_stages_for_one_outer_stage_are_refused() -> None:
    class Inner(Extension):
        @provides("norm", stage="step")
        def pre_inner(self) -> float:
            return 1.0

    with pytest.raises(OrderError, match=r"both provide 'norm' in stage 'step'"):
        Loop([Inner(), Grads()])


class A(Extension):
    @provides("a")
    def post_step(self, b: int) -> int:
        return b


class B(Extension):
    @provides("b")
    def post_step(self, a: int) -> int:
        return a


def test_a_cycle_is_refused() -> None:
    loop = Loop([A()])
    with pytest.raises(OrderError) as error:
        loop.add_extension(B())
    lines = str(error.value).splitlines()
    assert lines[0] == (
        "hooks at post_step wait for each other: "
        "B.post_step waits for 'a' of A.post_step; A.post_step waits for 'b' of B.post_step"
    )
    assert lines[-1] == "  let one of them run at another stage, or take the value from another fixture"


def test_a_cycle_is_told_though_its_hooks_also_wait_for_others() -> None:
    class WaitsToo(Extension):
        @provides("a")
        def post_step(self, norm: int, b: int) -> int:
            return b

    class Behind(Extension):
        def post_step(self, a: int) -> None: ...

    with pytest.raises(OrderError, match=r"WaitsToo.post_step waits for 'b' of B.post_step"):
        Loop([Grads(), Behind(), WaitsToo(), B()])


def test_two_modifiers_at_every_stage_are_refused_as_they_are_added() -> None:
    class Every(Extension):
        @modifies("x")
        def post_stage(self, x: float) -> float:
            return x

    class Other(Every):
        pass

    loop = Loop([Every()])
    with pytest.raises(OrderError, match=r"both modify 'x' at post_stage"):
        loop.add_extension(Other())


class Marker(Extension):
    @provides("marked")
    @modifies("x")
    def post_step(self, x: float) -> tuple[float, float]:
        return x, x + 1


class Link(Extension):
    @provides("linked")
    def post_step(self, marked: float) -> float:
        return marked


class Last(Extension):
    @modifies("x")
    def post_step(self, x: float, linked: float) -> float:
        return 10 * x


@pytest.mark.parametrize("refused", ["add", "replace", "remove"])
def test_after_a_refusal_nothing_has_changed(refused: str) -> None:
    seen: list[float] = []
    loop = Loop(
        {"last": Last(), "marker": Marker(), "link": Link(), "seen": Extension.of(post_step=lambda x: seen.append(x))}
    )
    plan, before = loop._registry.plans["step"], dict(loop.extensions)
    with pytest.raises(OrderError, match="both modify 'x' at post_step"):
        if refused == "add":
            loop.add_extension(Second())
        elif refused == "replace":
            loop.add_extension(Second(), "link")
        else:
            loop.remove_extension("link")
    assert dict(loop.extensions) == before
    assert loop._registry.plans["step"] is plan
    loop.remove_extension("seen")
    loop.add_extension(post_step=lambda x: seen.append(x))
    loop.step(1.0)
    assert seen == [20.0]


# ---- any hooks -------------------------------------------------------------------------------------------------------

NAMES = ("p", "q", "r", "s")


@dataclass(frozen=True)
class Spec:
    """A hook: what it reads, provides and modifies, and its priority."""

    reads: frozenset[str]
    provides: frozenset[str]
    modifies: frozenset[str]
    priority: int

    def made(self) -> Extension:
        function = Extension.of(post_step=eval(f"lambda {', '.join(sorted(self.reads))}: None")).post_step  # type: ignore[attr-defined]
        if self.modifies:
            function = modifies(*sorted(self.modifies))(function)
        if self.provides:
            function = provides(*sorted(self.provides))(function)
        made = Extension.of(post_step=function)
        made.priority = self.priority
        return made


names = st.frozensets(st.sampled_from(NAMES), max_size=2)
specs = st.lists(
    st.builds(
        Spec,
        reads=names,
        provides=st.frozensets(st.sampled_from(NAMES), max_size=1),
        modifies=st.frozensets(st.sampled_from(NAMES), max_size=1),
        priority=st.integers(-1, 1),
    ),
    min_size=1,
    max_size=5,
)


def must_precede(hooks: Sequence[Spec]) -> set[tuple[int, int]]:
    """The pairs that the design orders, spelled out."""
    pairs = set()
    for (i, first), (j, second) in itertools.permutations(enumerate(hooks), 2):
        written_by_second = second.provides | second.modifies
        if first.provides & second.modifies or (first.provides | first.modifies) & (second.reads - written_by_second):
            pairs.add((i, j))
    return pairs


def leads(pairs: set[tuple[int, int]], count: int) -> set[tuple[int, int]]:
    """The transitive closure."""
    reached = set(pairs)
    for _ in range(count):
        reached |= {(a, d) for a, b in reached for c, d in reached if b == c}
    return reached


def expected(hooks: Sequence[Spec]) -> set[tuple[int, int]] | None:
    """The pairs that must hold; None where the hooks must be refused."""
    pairs = must_precede(hooks)
    ordered = leads(pairs, len(hooks))
    for (i, first), (j, second) in itertools.combinations(enumerate(hooks), 2):
        if first.provides & second.provides:
            return None
        unordered = first.modifies & second.modifies and not {(i, j), (j, i)} & ordered
        if unordered and first.priority != second.priority:
            pairs.add((i, j) if first.priority < second.priority else (j, i))
    ordered = leads(pairs, len(hooks))
    if any((i, i) in ordered for i in range(len(hooks))):
        return None
    for (i, first), (j, second) in itertools.combinations(enumerate(hooks), 2):
        if first.modifies & second.modifies and not {(i, j), (j, i)} & ordered:
            return None
    return ordered


thoroughly = settings(
    max_examples=share_of(300),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@thoroughly
@given(specs, st.randoms(use_true_random=False))
def test_any_hooks_are_ordered_as_the_obvious_reference_says(hooks: list[Spec], random: Any) -> None:
    wanted = expected(hooks)
    shuffled = list(enumerate(hooks))
    random.shuffle(shuffled)
    extensions = {str(index): spec.made() for index, spec in shuffled}
    if wanted is None:
        with pytest.raises(OrderError):
            Loop(extensions)
        return
    order = [int(owner) for owner in order_of(Loop(extensions))]
    assert sorted(order) == list(range(len(hooks)))
    position = {index: count for count, index in enumerate(order)}
    assert all(position[before] < position[after] for before, after in wanted)
    registered = {index: count for count, (index, _) in enumerate(shuffled)}
    for i, j in itertools.permutations(range(len(hooks)), 2):
        adjacent = position[j] == position[i] + 1
        if adjacent and (i, j) not in wanted:
            assert (hooks[i].priority, registered[i]) < (hooks[j].priority, registered[j])
