"""Random programs of stages, run by the library and by a slow, obvious model of what the design says of them.

A program is a tree of stages whose bodies write fixtures, open further stages, raise, and leave generators half-way;
hooks of two extensions fail here and there. After each step both sequences write down what came out and what is alive.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.rotation import share_of
from train_manager import Extensible, Extension, SkipStage, TrainManagerError, always
from train_manager.errors import FixtureExists, FixtureNotFound, NoStageOpen, StageError
from train_manager.telling.errors import HookError

STAGES = ("a", "b", "c")
NAMES = ("p", "q", "r", "s")
ERRORS = (ValueError, KeyError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration, SkipStage)
AROUND_FAULTS = ("swallows", "never yields", "yields twice", "remakes")

Error = type[BaseException]
Shape = tuple[object, ...]  # an exception as both sequences write it down
Fault = Error | str
Log = list[tuple[object, ...]]


# ---- programs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One step of a body: what it does, to which name, in which stage, with the stage that it opens."""

    does: str
    name: str = ""
    stage: str = ""
    value: int = 0
    opens: Block | None = None
    error: Error | None = None
    caught: bool = True


@dataclass(frozen=True)
class Block:
    """One stage of a program."""

    name: str
    given: Mapping[str, int]
    defaults: Mapping[str, int]
    body: tuple[Step, ...]


@dataclass(frozen=True)
class Program:
    """The blocks one after the other, and which hooks fail: (extension, kind, stage) -> how."""

    blocks: tuple[Block, ...]
    faults: Mapping[tuple[int, str, str], Fault]


values = st.integers(0, 99)
some_fixtures = st.dictionaries(st.sampled_from(NAMES), values, max_size=2)
names = st.sampled_from(NAMES)
stages = st.sampled_from(STAGES)


def steps(depth: int) -> st.SearchStrategy[Step]:
    writes = st.one_of(
        st.builds(Step, does=st.sampled_from(["define", "modify", "update", "setdefault"]), name=names, value=values),
        st.builds(Step, does=st.just("define"), name=names, stage=stages, value=values),
        st.builds(Step, does=st.just("raise"), error=st.sampled_from(ERRORS), caught=st.just(False)),
        st.builds(Step, does=st.sampled_from(["finish", "close", "drop", "return", "break"])),
    )
    if not depth:
        return writes
    opens = blocks(depth - 1)
    nested = st.builds(Step, does=st.sampled_from(["open", "open", "start"]), opens=opens, caught=st.booleans())
    return writes | nested


def blocks(depth: int) -> st.SearchStrategy[Block]:
    body = st.lists(steps(depth), min_size=min(depth, 2), max_size=4).map(tuple)
    return st.builds(Block, name=stages, given=some_fixtures, defaults=some_fixtures, body=body)


hooks = st.tuples(st.integers(0, 1), st.sampled_from(["pre", "post", "always", "enter", "leave"]), stages)
programs = st.builds(
    Program,
    blocks=st.lists(blocks(4), min_size=1, max_size=2).map(tuple),
    faults=st.dictionaries(hooks, st.sampled_from(ERRORS), max_size=3)
    | st.dictionaries(
        st.tuples(st.integers(0, 1), st.just("around"), stages), st.sampled_from(AROUND_FAULTS), max_size=2
    ),
)


# ---- the library -----------------------------------------------------------------------------------------------------


class Value:
    """A value that can be watched."""

    def __init__(self, number: int, watched: list[weakref.ref[Value]]) -> None:
        self.number = number
        watched.append(weakref.ref(self))


class Faulty(Extension):
    """Hooks before, after and around every stage; each fails where the program says so."""

    def __init__(self, number: int, faults: Mapping[tuple[int, str, str], Fault], log: Log) -> None:
        self.number = number
        self.faults = faults
        self.log = log
        for stage in STAGES:
            vars(self)[f"pre_{stage}"] = partial(self._hook, "pre", stage)
            vars(self)[f"post_{stage}"] = partial(self._hook, "post", stage)
            vars(self)[f"around_{stage}"] = partial(self._around, stage)

    @always
    def post_stage(self, stage: Any, exc_type: Error | None) -> None:
        self._hook("always", stage.name)

    def _hook(self, kind: str, stage: str, /) -> None:
        self.log.append((self.number, kind, stage))
        fault = self.faults.get((self.number, kind, stage))
        if isinstance(fault, type):
            raise fault(f"{kind} {self.number}")

    def _around(self, stage: str, /) -> Generator[None]:
        fault = self.faults.get((self.number, "around", stage))
        self._hook("enter", stage)
        if fault == "never yields":
            return
        try:
            yield
        except BaseException as error:
            self._hook("leave", stage)
            if fault == "yields twice":
                yield
            if fault == "remakes":
                raise KeyError("remade") from error
            if fault != "swallows":
                raise
        else:
            self._hook("leave", stage)
            if fault == "yields twice":
                yield


class Library:
    """Runs a program with the library."""

    def __init__(self, program: Program) -> None:
        self.log: Log = []
        self.watched: list[weakref.ref[Value]] = []
        self.extensible = Extensible([Faulty(number, program.faults, self.log) for number in range(2)])
        self.generators: list[Generator[None]] = []

    def run(self, program: Program) -> Log:
        for block in program.blocks:
            self._noting(partial(self._block, block))
        while self.generators:
            self._noting(self.generators.pop().close)
        return self.log

    def _noting(self, do: Callable[[], object]) -> None:
        """Do it and write down how it ended and what is alive then."""
        try:
            do()
        except BaseException as error:
            self.log.append(shape(error))
        fixtures = self.extensible.fixtures
        stage = fixtures["stage"]
        path = stage.path if stage else ()
        assert len(path) == (stage.depth if stage else 0)
        self.log.append(("alive", {name: value.number for name, value in fixtures.items()}, path))

    def _value(self, number: int) -> Value:
        return Value(number, self.watched)

    def _block(self, block: Block) -> None:
        given = {name: self._value(number) for name, number in block.given.items()}
        defaults = {name: self._value(number) for name, number in block.defaults.items()}
        for _once in (1,):
            with self.extensible.staged(block.name, given, defaults):
                del given, defaults
                for step in block.body:
                    if step.does == "return":
                        return
                    if step.does == "break":
                        break
                    if step.caught:
                        self._noting(partial(self._step, step))
                    else:
                        self._step(step)

    def _generator(self, block: Block) -> Generator[None]:
        given = {name: self._value(number) for name, number in block.given.items()}
        with self.extensible.staged(block.name, given):
            del given
            yield

    def _step(self, step: Step) -> None:
        fixtures = self.extensible.fixtures
        if step.does == "define":
            fixtures.define(step.name, self._value(step.value), step.stage or None)
        elif step.does == "modify":
            fixtures.modify(step.name, self._value(step.value))
        elif step.does == "update":
            fixtures.update({step.name: self._value(step.value)})
        elif step.does == "setdefault":
            fixtures.setdefault(step.name, self._value(step.value))
        elif step.does == "raise":
            assert step.error is not None
            raise step.error("body")
        elif step.does == "open":
            assert step.opens is not None
            self._block(step.opens)
        elif step.does == "start":
            assert step.opens is not None
            generator = self._generator(step.opens)
            next(generator)
            self.generators.append(generator)
        elif self.generators:
            self._end_of_generator(step.does)

    def _end_of_generator(self, how: str) -> None:
        generator = self.generators.pop(0)
        if how == "finish":
            for _ in generator:
                raise AssertionError("it yields once")
        elif how == "close":
            generator.close()
        else:
            with unraisable() as errors:
                del generator
            for error in errors:
                self.log.append(("unraisable", error))


@contextmanager
def unraisable() -> Iterator[list[Shape]]:
    """What generators raise when they are collected: nobody could catch it."""
    errors: list[Shape] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda told: errors.append(shape(told.exc_value))
    try:
        yield errors
    finally:
        sys.unraisablehook = before


def shape(error: BaseException | None) -> Shape:
    if isinstance(error, BaseExceptionGroup):
        return ("group", *map(shape, error.exceptions))
    if isinstance(error, TrainManagerError):
        return (type(error),)
    assert error is not None
    return (type(error), *error.args)


# ---- the model -------------------------------------------------------------------------------------------------------


@dataclass
class Frame:
    """An open stage of the model."""

    name: str
    owned: dict[str, int] = field(default_factory=dict)
    entered: list[int] = field(default_factory=list)  # extensions whose around-hook waits
    left: bool = False


class Raised(Exception):
    """An exception of the program, as its shape."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape


def failed_with(error: Error, *args: object) -> Raised:
    return Raised((error, *args))


def weight(shape: Shape) -> int:
    error = shape[0]
    if error == "group":
        return 1
    assert isinstance(error, type)
    if issubclass(error, SkipStage | GeneratorExit):
        return 0
    return 1 if issubclass(error, Exception) else 2


def outcome(body: Shape | None, of_hooks: list[Shape]) -> Shape | None:
    """Interruptions before errors before parameters; among equals the body's; several errors of hooks are a group."""
    everything = [body, *of_hooks] if body else of_hooks
    if not everything:
        return None
    heaviest = max(map(weight, everything))
    if body and weight(body) == heaviest:
        return body
    candidates = [error for error in of_hooks if weight(error) == heaviest]
    return ("group", *candidates) if len(candidates) > 1 and heaviest == 1 else candidates[0]


def through_generator(shape: Shape) -> Shape:
    return (RuntimeError, "generator raised StopIteration") if shape[0] is StopIteration else shape


class Model:
    """Runs a program by the words of the design, with a list of open stages and no shortcuts."""

    def __init__(self, program: Program) -> None:
        self.log: Log = []
        self.faults = program.faults
        self.open: list[Frame] = []
        self.generators: list[Frame] = []

    def run(self, program: Program) -> Log:
        for block in program.blocks:
            self._noting(partial(self._block, block))
        while self.generators:
            self._noting(partial(self._end_of_generator, "close", self.generators.pop()))
        return self.log

    def _noting(self, do: Callable[[], object]) -> None:
        try:
            do()
        except Raised as error:
            self.log.append(error.shape)
        self.log.append(("alive", self._alive(), tuple(frame.name for frame in self.open)))

    # ---- fixtures

    def _visible(self) -> list[Frame]:
        """A stage that is open again inside itself is hidden."""
        inner = [[later.name for later in self.open[index + 1 :]] for index in range(len(self.open))]
        return [frame for frame, inside in zip(self.open, inner, strict=True) if frame.name not in inside]

    def _alive(self) -> dict[str, int]:
        return {name: value for frame in self._visible() for name, value in frame.owned.items()}

    def _define(self, name: str, value: int, stage: str = "") -> None:
        if not self.open:
            raise failed_with(NoStageOpen)
        target = self.open[-1]
        if stage:
            of_that_name = [frame for frame in self.open if frame.name == stage]
            if not of_that_name:
                raise failed_with(StageError)
            target = of_that_name[-1]
        around = self.open[: self.open.index(target) + 1]
        outlived = self.open[len(around) :]  # when these have ended, what they hide is back
        back_then = {
            name
            for frame in around
            for name in frame.owned
            if frame.name in [inner.name for inner in outlived] and frame not in self._visible()
        }
        if name in self._alive() or name in back_then:
            raise failed_with(FixtureExists)
        target.owned[name] = value

    def _modify(self, name: str, value: int) -> None:
        if not self.open:
            raise failed_with(NoStageOpen)
        for frame in self._visible():
            if name in frame.owned:
                frame.owned[name] = value
                return
        raise failed_with(FixtureNotFound)

    # ---- stages

    def _enter(self, block: Block, defaults: Mapping[str, int]) -> Frame:
        frame = Frame(block.name)
        self.open.append(frame)
        try:
            for name, value in block.given.items():
                self._define(name, value)
            for name, value in defaults.items():
                if name not in self._alive():
                    self._define(name, value)
        except Raised:
            self.open.pop()
            raise
        try:
            for number in range(2):
                self._enter_around(number, frame)
            for number in range(2):
                self._hook(number, "pre", frame.name)
        except Raised as error:
            self._end(frame, None, [error.shape])
        return frame

    def _exit(self, frame: Frame, body: Shape | None) -> None:
        if frame.left:
            if body:
                raise Raised(body)
            return
        of_hooks: list[Shape] = []
        while self.open[-1] is not frame:
            try:
                self._end(self.open[-1], (StageError,), [])
            except Raised as error:
                of_hooks.append(error.shape)
        self._end(frame, body, of_hooks)

    def _end(self, frame: Frame, body: Shape | None, of_hooks: list[Shape]) -> None:
        first = body or next(iter(of_hooks), None)
        for number in range(2):
            for kind in ("always", "post"):
                if kind == "always" or not first:
                    try:
                        self._hook(number, kind, frame.name)
                    except Raised as error:
                        of_hooks.append(error.shape)
                        first = first or error.shape
        while frame.entered:
            try:
                self._leave_around(frame.entered.pop(), frame.name, first)
            except Raised as error:
                of_hooks.append(error.shape)
                first = first or error.shape
        assert self.open.pop() is frame
        frame.left = True
        told = outcome(body, of_hooks)
        if told:
            raise Raised(told)

    def _hook(self, number: int, kind: str, stage: str) -> None:
        self.log.append((number, kind, stage))
        fault = self.faults.get((number, kind, stage))
        if isinstance(fault, type):
            raise failed_with(fault, f"{kind} {number}")

    def _enter_around(self, number: int, frame: Frame) -> None:
        try:
            self._hook(number, "enter", frame.name)
        except Raised as error:
            raise Raised(through_generator(error.shape)) from None
        if self.faults.get((number, "around", frame.name)) == "never yields":
            raise failed_with(HookError)
        frame.entered.append(number)

    def _leave_around(self, number: int, stage: str, failed: Shape | None) -> None:
        try:
            self._hook(number, "leave", stage)
        except Raised as error:
            raise Raised(through_generator(error.shape)) from None
        fault = self.faults.get((number, "around", stage))
        if fault == "yields twice":
            raise failed_with(HookError)
        if fault == "remakes" and failed:
            raise failed_with(KeyError, "remade")

    # ---- bodies

    def _block(self, block: Block) -> None:
        frame = self._enter(block, block.defaults)
        failed: Shape | None = None
        try:
            for step in block.body:
                if step.does in ("return", "break"):
                    break
                if step.caught:
                    self._noting(partial(self._step, step))
                else:
                    self._step(step)
        except Raised as error:
            failed = error.shape
        self._exit(frame, failed)

    def _step(self, step: Step) -> None:
        if step.does == "define":
            self._define(step.name, step.value, step.stage)
        elif step.does == "modify" or (step.does == "update" and step.name in self._alive()):
            self._modify(step.name, step.value)
        elif step.does == "update" or (step.does == "setdefault" and step.name not in self._alive()):
            self._define(step.name, step.value)
        elif step.does == "raise":
            assert step.error is not None
            raise failed_with(step.error, "body")
        elif step.does == "open":
            assert step.opens is not None
            self._block(step.opens)
        elif step.does == "start":
            assert step.opens is not None
            try:
                self.generators.append(self._enter(step.opens, {}))
            except Raised as error:
                raise Raised(through_generator(error.shape)) from None
        elif step.does in ("finish", "close", "drop") and self.generators:
            self._end_of_generator(step.does, self.generators.pop(0))

    def _end_of_generator(self, how: str, frame: Frame) -> None:
        try:
            self._exit(frame, None if how == "finish" else (GeneratorExit,))
        except Raised as error:
            told = through_generator(error.shape)
            if how != "finish" and told[0] is GeneratorExit:
                return
            if how == "drop":
                self.log.append(("unraisable", told))
                return
            raise Raised(told) from None


# ---- the tests -------------------------------------------------------------------------------------------------------

thoroughly = settings(
    max_examples=share_of(350),  # twice: with written-out hooks and with looped ones
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # making a failing program smaller takes minutes, and they are small
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
@thoroughly
@given(programs)
def test_the_library_does_what_the_model_does(program: Program) -> None:
    assert Library(program).run(program) == Model(program).run(program)


@pytest.mark.slow
@thoroughly
@given(programs)
def test_whatever_happened_nothing_is_open_and_nothing_is_alive_at_the_end(program: Program) -> None:
    library = Library(program)
    gc.disable()
    try:
        library.run(program)
        fixtures = library.extensible.fixtures
        assert (dict(fixtures), fixtures["stage"], fixtures["exc_value"]) == ({}, None, None)
        assert [reference() for reference in library.watched if reference()] == []
    finally:
        gc.enable()
