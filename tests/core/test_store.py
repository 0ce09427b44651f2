"""Random stages with lazy fixtures, run by the library and by a slow, obvious model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.rotation import share_of
from train_manager import Extensible, Extension, fixture, provides
from train_manager.errors import FixtureExists, FixtureNotFound, OrderError

STAGES = ("a", "b")
PLAIN = ("x", "y")
PROVIDED = ("p", "q", "r")


@dataclass(frozen=True)
class Maker:
    """A provider: the stage, what it asks for, whether it fails and whether it cleans up."""

    stage: str
    asks: tuple[str, ...]
    fails: bool
    cleans: bool


@dataclass(frozen=True)
class Step:
    """Something a body does with a name."""

    does: str
    name: str
    opens: Block | None = None


@dataclass(frozen=True)
class Block:
    """One stage."""

    stage: str
    given: frozenset[str]
    body: tuple[Step, ...]


Makers = Mapping[str, Maker]
Log = list[tuple[object, ...]]
some_names = st.sampled_from(PLAIN + PROVIDED)


def blocks(depth: int) -> st.SearchStrategy[Block]:
    steps: st.SearchStrategy[Step] = st.builds(
        Step, does=st.sampled_from(["ask", "ask", "ask", "modify", "define", "fail"]), name=some_names
    )
    if depth:
        steps |= st.builds(Step, does=st.just("open"), name=st.just(""), opens=blocks(depth - 1))
    return st.builds(
        Block,
        stage=st.sampled_from(STAGES),
        given=st.frozensets(st.sampled_from(PLAIN), max_size=1),
        body=st.lists(steps, min_size=2, max_size=5).map(tuple),
    )


makers = st.dictionaries(
    st.sampled_from(PROVIDED),
    st.builds(
        Maker,
        stage=st.sampled_from(STAGES),
        asks=st.lists(some_names, max_size=2, unique=True).map(tuple),
        fails=st.sampled_from([False, False, False, True]),
        cleans=st.booleans(),
    ),
)
thoroughly = settings(
    max_examples=share_of(200),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def provider(name: str, maker: Maker, log: Log) -> Callable[..., Any]:
    """A method that computes the sum of what it asks for, plus one."""

    def compute(values: Mapping[str, int]) -> int:
        log.append(("computed", name, tuple(values[asked] for asked in maker.asks)))
        if maker.fails:
            raise ValueError(name)
        return sum(values.values()) + 1

    def cleaning(values: Mapping[str, int]) -> Iterator[int]:
        yield compute(values)
        log.append(("cleaned", name))

    scope = {"compute": compute, "cleaning": cleaning}
    values = "{" + ", ".join(f"'{asked}': {asked}" for asked in maker.asks) + "}"
    does = f"yield from cleaning({values})" if maker.cleans else f"return compute({values})"
    exec(f"def {name}(self, {', '.join(maker.asks)}): {does}", scope)
    function: Callable[..., Any] = fixture(maker.stage)(scope[name])
    return function


class Library:
    """Runs a block with the library."""

    def __init__(self, makers: Makers) -> None:
        self.log: Log = []
        methods = {name: provider(name, maker, self.log) for name, maker in makers.items()}
        self.extensible = Extensible([type("Made", (Extension,), methods)()] if methods else [])

    def run(self, block: Block) -> Log:
        fixtures = self.extensible.fixtures
        try:
            with self.extensible.staged(block.stage, dict.fromkeys(block.given, 10)):
                for step in block.body:
                    self.step(step)
        except Exception as error:
            self.log.append((type(error),))
        self.log.append(("alive", frozenset(fixtures)))
        return self.log

    def step(self, step: Step) -> None:
        fixtures = self.extensible.fixtures
        if step.does == "open" and step.opens:
            self.run(step.opens)
            return
        try:
            if step.does == "ask":
                self.log.append(("got", step.name, fixtures[step.name]))
            elif step.does == "modify":
                fixtures.modify(step.name, 100)
            elif step.does == "define":
                fixtures[step.name] = 1000
        except Exception as error:
            self.log.append((type(error),))
        if step.does == "fail" and step.name == "x":
            raise KeyError(step.name)


class Frame:
    """One open stage of the model."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.values: dict[str, int] = {}
        self.lazy: set[str] = set()
        self.cleanups: list[str] = []

    def owns(self, name: str) -> bool:
        return name in self.values or name in self.lazy


class Model:
    """What the design says, spelled out: a list of frames; the innermost of each stage counts."""

    def __init__(self, makers: Makers) -> None:
        self.makers = makers
        self.log: Log = []
        self.frames: list[Frame] = []
        self.computing: list[str] = []

    def seen(self) -> list[Frame]:
        innermost = {frame.stage: frame for frame in self.frames}
        return [frame for frame in self.frames if innermost[frame.stage] is frame]

    def owner(self, name: str) -> Frame | None:
        return next((frame for frame in self.seen() if frame.owns(name)), None)

    def ask(self, name: str) -> int:
        owner = self.owner(name)
        if owner is None:
            raise FixtureNotFound("")
        if name in owner.values:
            return owner.values[name]
        if name in self.computing:
            raise OrderError("")
        self.computing.append(name)
        try:
            maker = self.makers[name]
            owners = [self.owner(asked) for asked in maker.asks]
            if any(self.frames.index(o) > self.frames.index(owner) for o in owners if o) or None in owners:
                raise FixtureNotFound("")
            values = {asked: self.ask(asked) for asked in maker.asks}
            self.log.append(("computed", name, tuple(values[asked] for asked in maker.asks)))
            if maker.fails:
                raise ValueError(name)
            if maker.cleans:
                owner.cleanups.append(name)
            owner.lazy.discard(name)
            owner.values[name] = sum(values.values()) + 1
            return owner.values[name]
        finally:
            self.computing.remove(name)

    def define(self, name: str, value: int) -> None:
        if self.owner(name):
            raise FixtureExists("")
        self.frames[-1].values[name] = value

    def modify(self, name: str, value: int) -> None:
        owner = self.owner(name)
        if owner is None:
            raise FixtureNotFound("")
        owner.lazy.discard(name)
        owner.values[name] = value

    def enter(self, frame: Frame, given: frozenset[str]) -> None:
        for name in given:
            self.define(name, 10)
        lazy = {name for name, maker in self.makers.items() if maker.stage == frame.stage}
        if any(map(self.owner, lazy)):
            raise FixtureExists("")
        frame.lazy = lazy

    def run(self, block: Block) -> Log:
        frame = Frame(block.stage)
        self.frames.append(frame)
        failed: Log = []
        try:
            self.enter(frame, block.given)
            for step in block.body:
                self.step(step)
        except Exception as error:
            failed = [(type(error),)]
        self.log += [("cleaned", name) for name in reversed(frame.cleanups)] + failed
        self.frames.remove(frame)
        alive = {name for seen in self.seen() for name in (*seen.values, *seen.lazy)}
        self.log.append(("alive", frozenset(alive)))
        return self.log

    def step(self, step: Step) -> None:
        if step.does == "open" and step.opens:
            self.run(step.opens)
            return
        try:
            if step.does == "ask":
                self.log.append(("got", step.name, self.ask(step.name)))
            elif step.does == "modify":
                self.modify(step.name, 100)
            elif step.does == "define":
                self.define(step.name, 1000)
        except Exception as error:
            self.log.append((type(error),))
        if step.does == "fail" and step.name == "x":
            raise KeyError(step.name)


@thoroughly
@given(makers, blocks(3))
def test_fixtures_on_demand_are_what_the_model_says(makers: Makers, block: Block) -> None:
    assert Library(makers).run(block) == Model(makers).run(block)


# ---- renewing --------------------------------------------------------------------------------------------------------


class Mean(Extension):
    def __init__(self) -> None:
        self.seen: list[int] = []

    @provides("mean", stage="run")
    def post_step(self, x: int) -> int:
        self.seen.append(x)
        return sum(self.seen) // len(self.seen)


def test_a_hook_renews_what_it_has_provided_in_an_outer_stage() -> None:
    extensible = Extensible([Mean()])
    means = []
    with extensible.staged("run"):
        for x in (2, 4):
            with extensible.staged("step", {"x": x}):
                pass
            means.append(extensible.fixtures["mean"])
    assert (means, dict(extensible.fixtures)) == ([2, 3], {})


def test_nobody_else_may_renew_it() -> None:
    class Other(Extension):
        @provides("mean", stage="run")
        def post_other(self) -> int:
            return 0

    class Loose(Extension):
        def post_loose(self, fixtures: Any) -> None:
            fixtures.define("mean", 0, stage="run")

    with pytest.raises(OrderError, match=r"both provide 'mean' in stage 'run'"):
        Extensible([Mean(), Other()])
    extensible = Extensible([Mean()])
    with extensible.staged("run", {"mean": 7}):
        with pytest.raises(
            FixtureExists, match=r"Mean.post_step defines 'mean', which stage 'run' has defined already"
        ):
            with extensible.staged("step", {"x": 2}):
                pass
        assert extensible.fixtures["mean"] == 7
    extensible = Extensible([Mean(), Loose()])
    with extensible.staged("run"):
        with extensible.staged("step", {"x": 2}):
            pass
        with pytest.raises(FixtureExists, match=r"which stage 'run' has defined already"):
            with extensible.staged("loose"):
                pass
        assert extensible.fixtures["mean"] == 2
