"""The map of the loop shows the stages that run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from train_manager import Extension, TrainManager
from train_manager.checker.methods import Methods
from train_manager.checker.walk import stage_tree
from train_manager.core.stage import Stage
from train_manager.stages import MAP
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
        train_manager.save_soon()

    def pre_train_step_batch(self, train_manager: TrainManager, stage: Stage) -> None:
        if stage.depth == 2:
            train_manager.end_epoch()
            train_manager.save_soon()


@pytest.fixture
def ran(tmp_path: Path) -> tuple[Opened, Recorder]:
    """All that a TrainManager can be asked for, in the order of the map; some of it with two evaluation sets."""
    opened, recorder = Opened(), Recorder()
    tm = tiny_manager(opened, recorder, epochs=3, train_dir=tmp_path, device="cpu")
    tm.eval_data["again"] = tm.eval_data["valid"]
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
    not_asked_for = {"last_batch", "example_index", "data_seconds", "loss_parts"}  # lazy

    assert ran[1].born == {path: fixtures - not_asked_for for path, fixtures in parsed(MAP).items()}


def test_the_check_finds_the_stages_of_the_map_and_their_fixtures() -> None:
    tm = tiny_manager()
    nodes = stage_tree(Methods(TrainManager), tm._registry.plans.__getitem__).nodes

    assert {path: {*node.definers} for path, node in nodes.items()} == parsed(MAP)


def test_the_map_is_parsed_into_thirty_six_stages() -> None:
    """A parser that finds nothing would agree with everything."""
    assert len(parsed(MAP)) == 36


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
