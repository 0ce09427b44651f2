"""The core's rows of seeds/learner-design.txt in shared/capabilities.md."""

from __future__ import annotations

import pytest

from train_manager import Extensible, Extension, FixtureNotFound, Fixtures, StageError
from train_manager.core.scope import Scope


class Hooked(Extension):
    def __init__(self, log: list[str], name: str) -> None:
        self.log = log
        self.name = name

    def pre_fit(self) -> None:
        self.log.append(f"pre {self.name}")

    def post_fit(self) -> None:
        self.log.append(f"post {self.name}")


@pytest.mark.parametrize("count", [0, 1, 2])
def test_f04_a_stage_is_preceded_and_followed_by_as_many_hooks_as_there_are(count: int) -> None:
    log: list[str] = []
    with Extensible([Hooked(log, str(number)) for number in range(count)]).staged("fit"):
        log.append("fit")
    numbers = [str(number) for number in range(count)]
    assert log == [*(f"pre {number}" for number in numbers), "fit", *(f"post {number}" for number in numbers)]


def test_f05_two_sibling_stages_of_one_name_are_two_stages_with_the_same_hooks() -> None:
    """The defined answer: neither refused nor merged; each opening is a stage, with fixtures of its own."""
    log: list[str] = []
    extensible = Extensible([Hooked(log, "hook")])
    with extensible.staged("epoch"):
        for number in range(2):
            with extensible.staged("fit", {"number": number}):
                log.append(f"fit {extensible.fixtures['number']}")
    assert log == ["pre hook", "fit 0", "post hook", "pre hook", "fit 1", "post hook"]


def test_f05_three_hooks_on_one_stage_all_run() -> None:
    log: list[str] = []
    with Extensible([Hooked(log, name) for name in "abc"]).staged("fit"):
        pass
    assert log == ["pre a", "pre b", "pre c", "post a", "post b", "post c"]


def test_f06_the_path_of_a_stage_four_deep_can_be_read_in_a_hook() -> None:
    paths: list[str] = []

    class Watcher(Extension):
        def pre_update(self, stage: Scope) -> None:
            paths.append("/".join(stage.path))

    extensible = Extensible([Watcher()])
    with extensible.staged("epoch"), extensible.staged("fit"), extensible.staged("fit_batch"):
        with extensible.staged("update"):
            pass
    assert paths == ["epoch/fit/fit_batch/update"]


def test_f07_a_hook_that_opens_a_stage_of_its_caller_is_refused_by_name() -> None:
    class Opener(Extension):
        def pre_fit(self, extensible: Extensible) -> None:
            with extensible.staged("update"):
                pass

    with pytest.raises(StageError, match=r"Opener.pre_fit opens stage 'update' of the extensible that is calling it"):
        with Extensible([Opener()]).staged("fit"):
            pass


def test_f08_a_stage_body_and_a_hook_read_the_same_fixture() -> None:
    seen: list[object] = []

    class Watcher(Extension):
        def post_fit(self, batch: object) -> None:
            seen.append(batch)

    extensible = Extensible([Watcher()])
    with extensible.staged("fit", {"batch": object()}):
        seen.append(extensible.fixtures["batch"])
    assert seen[0] is seen[1]


def test_f09_a_stage_body_and_a_hook_write_and_the_next_reader_sees_it() -> None:
    """The permission that a hook asks for (`@modifies`) comes later; `fixtures` is the open door."""
    seen: list[int] = []

    class Doubling(Extension):
        def pre_fit(self, batch: int, fixtures: Fixtures) -> None:
            fixtures.modify("batch", 2 * batch)

    class Watcher(Extension):
        def pre_fit(self, batch: int) -> None:
            seen.append(batch)

        def post_fit(self, batch: int) -> None:
            seen.append(batch)

    extensible = Extensible([Doubling(), Watcher()])
    with extensible.staged("fit", {"batch": 3}):
        extensible.fixtures.modify("batch", extensible.fixtures["batch"] + 1)
    assert seen == [6, 7]


def test_f15_reading_the_loss_after_its_stage_names_where_it_lived() -> None:
    extensible = Extensible()
    with extensible.staged("fit", {"loss": 1}):
        pass
    with pytest.raises(FixtureNotFound, match="'loss', which ended with stage 'fit'"):
        extensible.fixtures["loss"]


@pytest.mark.parametrize(("side", "log"), [("pre", ["hook", "stage"]), ("post", ["stage", "hook"])])
def test_f23_hooks_precede_or_follow_a_stage_by_their_names(side: str, log: list[str]) -> None:
    ran: list[str] = []
    extension = Extension()
    vars(extension)[f"{side}_fit"] = lambda: ran.append("hook")
    with Extensible([extension]).staged("fit"):
        ran.append("stage")
    assert ran == log
