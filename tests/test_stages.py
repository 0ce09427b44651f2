"""The table of the loop, and the map that is drawn from it, have the stages that run."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable
from contextlib import AbstractContextManager
from inspect import getattr_static
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from train_manager import Extensible, Extension, Fixtures, InMemory, TrainManager
from train_manager.checker.methods import Methods
from train_manager.checker.outline import Opens, body_of
from train_manager.checker.walk import stage_tree
from train_manager.core.declarations import declarations_of
from train_manager.core.stage import Stage
from train_manager.extensions import Checkpoints, MetricStore
from train_manager.loop.batch_losses import BatchLosses
from train_manager.loop.losses import Losses
from train_manager.runs.store.writer import MetricWriter
from train_manager.stages import FIXTURES, MAP, TABLE
from train_manager.testing import Recorder, tiny_manager

StagePath = tuple[str, ...]
Tree = dict[StagePath, set[str]]


def parsed(text: str) -> Tree:
    """Return the path of each stage, in the order of the map, with the fixtures that the map says it owns."""
    tree: Tree = {}
    open_stages: list[tuple[int, str]] = []
    path: StagePath = ()
    shown_below: list[tuple[StagePath, int]] = []  # "eval, as below": its path, and after how many stages it stands
    for line in text.strip().splitlines():
        indentation = len(line) - len(line.lstrip())
        code, _, comment = (part.strip() for part in line.partition("#"))
        if code:  # else the list of a stage's fixtures continues
            while open_stages and open_stages[-1][0] >= indentation:
                open_stages.pop()
            path = tuple(name for _, name in open_stages)
        if staged := re.match(r'with staged\("(\w+)"\):$', code):
            open_stages.append((indentation, staged[1]))
            path = (*path, staged[1])
            tree[path] = set()
        if comment.startswith("of "):
            tree[path[: path.index(comment.removeprefix("of ")) + 1]].update(code.partition(" = ")[0].split(", "))
        elif comment:
            tree[path].update(filter(None, re.split(r"[,;] *", comment.replace("lazy: ", ""))))
        elif below := re.search(r": (\w+), as (?:below|above)$", code):
            shown_below.append(((*path, below[1]), len(tree)))
    return grafted(tree, shown_below)


def grafted(tree: Tree, shown_below: list[tuple[StagePath, int]]) -> Tree:
    """Return the tree with the stages that the map shows elsewhere also where it says "as below"."""
    items = list(tree.items())
    for path, index in reversed(shown_below):
        original = next(other for other in tree if other[-1] == path[-1])
        below = [(other, fixtures) for other, fixtures in tree.items() if other[: len(original)] == original]
        items[index:index] = [((*path, *other[len(original) :]), fixtures) for other, fixtures in below]
    return dict(items)


class Opened(Extension):
    """Records the path of each stage that opens; requests all that can be, before the first step of an epoch."""

    def __init__(self) -> None:
        self.paths: list[StagePath] = []

    def pre_stage(self, stage: Stage) -> None:
        self.paths.append(stage.path)

    def pre_train_step_epoch(self, train_manager: TrainManager) -> None:
        train_manager.eval_soon()
        train_manager.save_soon()

    def post_train_step_epoch(self, train_manager: TrainManager) -> None:
        train_manager.eval_soon()
        train_manager.save_soon()

    def pre_train_step_batch(self, train_manager: TrainManager, stage: Stage) -> None:
        if "train" not in stage.path:
            train_manager.end_epoch()
            train_manager.save_soon()

    def post_train_step_batch(self, train_manager: TrainManager) -> None:
        train_manager.eval_soon()


def watched(folder: Path, kind: type[TrainManager] = TrainManager) -> tuple[TrainManager, Opened, Recorder]:
    """A manager of which each stage is noted, with all that its run may have."""
    opened, recorder, tiny = Opened(), Recorder(), tiny_manager()
    tm = kind(
        model=tiny.model,
        loss=tiny.loss,
        optimizer=tiny.optimizer,
        train_data=tiny.train_data,
        eval_data={"valid": tiny.eval_data["valid"], "again": tiny.eval_data["valid"]},
        epochs=3,
        device="cpu",
        train_dir=folder,
        extensions=[opened, recorder],
    )
    return tm, opened, recorder


def tree_of(tm: TrainManager, entry: str | None = None) -> Tree:
    """The stages that the table gives a method, with their fixtures without the lazy ones."""
    nodes = stage_tree(Methods(type(tm)), tm._registry.plans.__getitem__, entry).nodes
    return {path: {*node.definers} - LAZY for path, node in nodes.items()}


LAZY = {"last_batch", "example_index", "data_seconds", "loss_parts"}


# ---- the map -------------------------------------------------------------------------------------------------------


@pytest.fixture
def ran(tmp_path: Path) -> tuple[Opened, Recorder]:
    """All that a TrainManager can be asked for, in the order of the map; some of it with two evaluation sets."""
    tm, opened, recorder = watched(tmp_path)
    batches = list(tm.train_data or ())
    tm.train_epochs(0)  # evaluates, as before any first epoch
    tm.train_epoch()  # evaluates only where it is requested
    tm.train()
    tm.train_on_batch(batches[0])
    tm.eval()
    tm.predict(batches)
    with tm.phase("another"):
        pass
    return opened, recorder


def test_the_stages_that_run_are_those_of_the_map_in_its_order(ran: tuple[Opened, Recorder]) -> None:
    assert list(dict.fromkeys(ran[0].paths)) == list(parsed(MAP))


def test_each_stage_owns_the_fixtures_that_the_map_gives_it(ran: tuple[Opened, Recorder]) -> None:
    assert ran[1].born == {path: fixtures - LAZY for path, fixtures in parsed(MAP).items()}


def test_the_check_finds_the_stages_of_the_map_and_their_fixtures() -> None:
    tm = tiny_manager()
    nodes = stage_tree(Methods(TrainManager), tm._registry.plans.__getitem__).nodes

    assert {path: {*node.definers} for path, node in nodes.items()} == parsed(MAP)


def test_the_map_is_parsed_into_thirty_six_stages() -> None:
    """A parser that finds nothing would agree with everything."""
    assert len(parsed(MAP)) == 36


# ---- each method of the table --------------------------------------------------------------------------------------


def hold_open(tm: TrainManager) -> None:
    tm.open()
    tm.close()


def batch_of(tm: TrainManager) -> Any:
    return next(iter(tm.train_data or ()))


def enter(context: AbstractContextManager[None]) -> None:
    with context:
        pass


CALLS: dict[str, Callable[[TrainManager], object]] = {
    "train": lambda tm: tm.train(),
    "train_epochs": lambda tm: tm.train_epochs(1),
    "train_steps": lambda tm: tm.train_steps(4),
    "train_epoch": lambda tm: tm.train_epoch(),
    "train_on_batch": lambda tm: tm.train_on_batch(batch_of(tm)),
    "eval": lambda tm: tm.eval(),
    "eval_on_batch": lambda tm: tm.eval_on_batch(batch_of(tm)),
    "predict": lambda tm: tm.predict([batch_of(tm)]),
    "run": lambda tm: enter(tm.run()),
    "open": hold_open,
    "phase": lambda tm: enter(tm.phase("another")),
}
IN_A_BATCH = {"forward", "update", "backward", "step"}


@pytest.mark.parametrize("method", CALLS)
def test_a_method_opens_the_stages_of_the_table_with_their_fixtures(method: str, tmp_path: Path) -> None:
    tm, opened, recorder = watched(tmp_path)
    CALLS[method](tm)

    assert recorder.born == tree_of(tm, method)
    assert {*opened.paths} == {*recorder.born}


def test_an_epoch_of_a_loop_of_ones_own_ends_in_the_stages_of_the_table(tmp_path: Path) -> None:
    tm, _, recorder = watched(tmp_path)
    tm.remove_extension("opened")
    with tm.run():
        tm.train_on_batch(batch_of(tm))
        tm.add_extension(post_train_step_epoch=lambda train_manager: train_manager.save_soon())
        tm.end_epoch()

    assert {path: born for path, born in recorder.born.items() if "train_step_batch" not in path} == tree_of(
        tm, "end_epoch"
    )


class InPhases(TrainManager):
    """Does all that can be done in a phase."""

    def fit(self) -> None:
        with self.phase("one"):
            batch = next(iter(self.train_data or ()))
            self.train()
            self.train_on_batch(batch)
            self.eval()
            self.predict([batch])


def test_what_is_called_in_a_phase_opens_its_stages_there(tmp_path: Path) -> None:
    tm, _, recorder = watched(tmp_path, InPhases)
    tm.fit()  # type: ignore[attr-defined]

    assert recorder.born == tree_of(tm, "fit")


class Forward(TrainManager):
    def train_batch(self) -> None:
        self.forward()

    def eval_batch(self) -> None:
        self.forward()
        self.forward()


class Update(TrainManager):
    def train_batch(self, model: nn.Module, inputs: Tensor) -> None:
        self.update(model(inputs).mean())
        if self.step_num < 0:
            self.fixtures["loss"] = model(inputs).mean()


class Backward(TrainManager):
    def train_batch(self, model: nn.Module, inputs: Tensor) -> None:
        self.backward(model(inputs).mean())


class Step(TrainManager):
    def train_batch(self, model: nn.Module, inputs: Tensor) -> None:
        self.backward(model(inputs).mean())
        self.step()


@pytest.mark.filterwarnings("ignore:train_batch has not called", "ignore:the run ended within a window")
@pytest.mark.parametrize("kind", [Forward, Update, Backward, Step])
def test_a_method_that_is_called_in_a_batch_opens_the_stages_of_the_table(
    kind: type[TrainManager], tmp_path: Path
) -> None:
    tm, _, recorder = watched(tmp_path, kind)
    tm.train()

    assert recorder.born == tree_of(tm, "train")


def test_each_method_of_the_table_that_opens_a_stage_is_called_here() -> None:
    overridable = {name for name in TABLE.methods if declarations_of(getattr(TrainManager, name)).overridable}

    assert {*TABLE.methods} - overridable == {*CALLS, *IN_A_BATCH, "end_epoch"}


def test_no_other_public_method_opens_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the source of the loop, of which the table is the summary."""
    public = [name for name in dir(TrainManager) if not name.startswith("_")]
    monkeypatch.delattr(TrainManager, "_stages")
    methods = Methods(TrainManager)
    found = {name: methods.named(name) for name in public}

    opening = {name for name, one in found.items() if one is not None and opens(methods, one)}
    assert opening - {*TABLE.methods} == set()
    assert {"train", "eval", "predict", "forward", "step"} <= opening


def opens(methods: Methods, function: FunctionType) -> bool:
    outlines = [methods.outline(one) for one in (function, *methods.reachable(function))]
    ahead = [item for outline in outlines for item in outline]
    while ahead:
        item = ahead.pop()
        if isinstance(item, Opens):
            return True
        ahead += body_of(item)
    return False


def test_each_overridable_method_is_in_the_table() -> None:
    declared = {name for name in dir(TrainManager) if declarations_of(getattr_static(TrainManager, name)).overridable}

    assert declared <= {*TABLE.methods}


# ---- the fixtures --------------------------------------------------------------------------------------------------

ALWAYS_THERE = {"fixtures", "stage", "train_manager", "extensible"}
OF_FAILURES = {"exc_type", "exc_value", "traceback"}
OF_EXTENSIONS = {"writer"}  # that the map of the loop does not show
NAMES = {
    **vars(types),
    **{kind.__name__: kind for kind in (BatchLosses, Extensible, Fixtures, Losses, MetricWriter, Stage, TrainManager)},
    **{"Any": Any, "EvalResult": dict, "Module": nn.Module, "Optimizer": torch.optim.Optimizer, "Path": Path},
    **{"Tensor": Tensor, "device": torch.device},
}


def test_every_fixture_of_the_map_has_a_type_and_a_meaning() -> None:
    assert set(FIXTURES) == set().union(*parsed(MAP).values()) | ALWAYS_THERE | OF_FAILURES | OF_EXTENSIONS


def type_of(fixture: str) -> Any:
    """Return the annotation of a fixture as a hint that ``isinstance`` takes."""
    hint = eval(FIXTURES[fixture].annotation, NAMES)
    return object if hint is Any else typing.get_origin(hint) if typing.get_origin(hint) in (dict, type) else hint


class Kinds(Extension):
    """Keep the fixtures that do not have the type that they are said to have."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.wrong: dict[str, Any] = {}

    def post_train_step_batch(
        self, last_batch: Any, example_index: Any, data_seconds: Any, loss_parts: Any
    ) -> None: ...

    def post_stage(self, stage: Stage, fixtures: Fixtures, train_manager: Any, extensible: Any) -> None:
        alive = {**fixtures, "stage": stage, "fixtures": fixtures}
        alive |= {"train_manager": train_manager, "extensible": extensible}
        self.seen |= {*alive}
        self.wrong |= {name: value for name, value in alive.items() if not isinstance(value, type_of(name))}


def test_the_fixtures_of_a_training_have_these_types(tmp_path: Path) -> None:
    kinds = Kinds()
    tm = tiny_manager(kinds, Checkpoints(), MetricStore(), train_dir=tmp_path, device="cpu")
    tm.train_data = InMemory(*next(iter(tm.train_data or ())), batch_size=8)
    tm.train()
    tm.predict([next(iter(tm.train_data))])

    assert (kinds.wrong, set(FIXTURES) - kinds.seen) == ({}, OF_FAILURES)


# ---- the pages -----------------------------------------------------------------------------------------------------


def children(drawing: str) -> dict[str, list[str]]:
    """Return the stages right below each stage of a drawn tree."""
    found: dict[str, list[str]] = {}
    path = ["run"]
    for match in re.finditer(r"^([│ ]*)[├└]─ (\w+)", drawing, flags=re.MULTILINE):
        path[len(match[1]) // 3 + 1 :] = [match[2]]
        found.setdefault(path[-2], []).append(path[-1])
    return found


def test_the_tree_of_the_docs_is_that_of_explain() -> None:
    page = (Path(__file__).parents[1] / "docs" / "reference" / "stages.md").read_text(encoding="utf-8")
    explained = children(tiny_manager().explain())

    assert children(page) == explained
    assert explained["train_step_epoch"] == ["eval", "save_checkpoint", "train_step_batch"]


def test_the_manager_opens_no_stage_that_is_not_on_the_map() -> None:
    loop = Path(__file__).parents[1] / "train_manager" / "loop"
    source = "".join(file.read_text(encoding="utf-8") for file in loop.glob("*.py"))

    assert set(re.findall(r'self\.staged\(\s*"(\w+)"', source)) == {path[-1] for path in parsed(MAP)}
