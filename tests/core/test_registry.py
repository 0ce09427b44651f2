"""Extensions that come and go during a run: the next stage that opens knows it, an open one keeps its plan."""

from __future__ import annotations

import copy

import pytest

from train_manager import Extensible, Extension, fixture
from train_manager.errors import FixtureNotFound, HookError


class Named(Extension):
    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    def pre_step(self) -> None:
        self.log.append(f"pre {self.name}")

    def post_step(self) -> None:
        self.log.append(f"post {self.name}")


def test_what_is_added_runs_from_the_next_stage_on() -> None:
    log: list[str] = []
    extensible = Extensible()
    with extensible.staged("run"):
        with extensible.staged("step"):
            extensible.add_extension(Named("new", log))
        assert log == []
        with extensible.staged("step"):
            pass
    assert log == ["pre new", "post new"]


def test_what_is_removed_continues_in_the_stage_that_is_open() -> None:
    log: list[str] = []
    extensible = Extensible([Named("old", log)])
    with extensible.staged("run"):
        with extensible.staged("step"):
            extensible.remove_extension("named")
        assert log == ["pre old", "post old"]
        with extensible.staged("step"):
            pass
    assert log == ["pre old", "post old"]


def test_what_is_replaced_ends_the_stage_that_it_has_begun() -> None:
    log: list[str] = []
    extensible = Extensible([Named("old", log)])
    for _ in range(2):
        with extensible.staged("step"):
            extensible.add_extension(Named("new", log), "named")
    assert log == ["pre old", "post old", "pre new", "post new"]


def test_a_hook_may_add_an_extension() -> None:
    log: list[str] = []

    class Adds(Extension):
        def pre_step(self, extensible: Extensible) -> None:
            if "new" not in extensible.extensions:
                extensible.add_extension(Named("new", log), "new")

    extensible = Extensible([Adds()])
    for _ in range(2):
        with extensible.staged("step"):
            pass
    assert log == ["pre new", "post new"]


class Lazy(Extension):
    @fixture("step")
    def answer(self) -> int:
        return 42


def test_a_lazy_fixture_comes_and_goes_with_the_next_stage() -> None:
    extensible = Extensible()
    with extensible.staged("step"):
        extensible.add_extension(Lazy())
        assert "answer" not in extensible.fixtures
    with extensible.staged("step"):
        extensible.remove_extension("lazy")
        assert extensible.fixtures["answer"] == 42
    with extensible.staged("step"):
        with pytest.raises(FixtureNotFound):
            extensible.fixtures["answer"]


def test_functions_can_be_added_by_the_names_of_hooks() -> None:
    seen = []
    extensible = Extensible()
    added = extensible.add_extension(post_step=lambda x: seen.append(x))
    with extensible.staged("step", {"x": 3}):
        pass
    assert seen == [3]
    assert extensible["hooks"] is added


@pytest.mark.parametrize("name", ["step", "on_step", "prestep"])
def test_a_function_whose_name_is_no_hooks_is_refused(name: str) -> None:
    with pytest.raises(HookError, match=rf"Extension.of was given {name}=.*, which is not a hook"):
        Extension.of(**{name: lambda: None})


def test_nothing_to_add_or_both_is_refused() -> None:
    with pytest.raises(HookError, match="takes an extension, or hooks by name"):
        Extensible().add_extension()
    with pytest.raises(HookError, match="takes an extension, or hooks by name"):
        Extensible().add_extension(Lazy(), pre_step=lambda: None)  # type: ignore[call-overload]


def test_a_set_of_extensions_is_added_whole_or_not_at_all() -> None:
    class Wrong(Extension):
        def pre_step(self, *rest: int) -> None: ...

    class Holder(Extensible):
        def __init__(self, extensions: list[Extension]) -> None:
            with pytest.raises(HookError):
                super().__init__(extensions)

    assert dict(Holder([Lazy(), Wrong()]).extensions) == {}


# ---- a class that says `sole = True` ---------------------------------------------------------------------------------


class Curves(Extension):
    sole = True

    def post_step(self) -> None: ...


class SmoothCurves(Curves):
    pass


class HasCurves(Extensible):
    extensions = [Curves()]


TWICE = (
    "'curves' and {!r} are both of class Curves, of which HasCurves has at most one\n"
    '  keep one of the two: add_extension(x, "curves") replaces the first, remove_extension("curves") removes it'
)


def test_a_sole_extension_takes_the_place_of_that_of_the_class_without_a_word() -> None:
    mine = SmoothCurves()
    worker = HasCurves([Named("new", []), mine])

    assert list(worker.extensions) == ["curves", "named"]
    assert worker["curves"] is mine


@pytest.mark.parametrize("name", [None, "mine"])
def test_a_second_one_of_a_sole_class_cannot_be_added(name: str | None) -> None:
    worker = HasCurves()
    with pytest.raises(HookError) as caught:
        worker.add_extension(SmoothCurves(), name)

    assert str(caught.value) == TWICE.format(name or "smooth_curves")
    assert list(worker.extensions) == ["curves"]


def test_two_of_a_sole_class_in_one_list_or_dict_are_refused() -> None:
    with pytest.raises(HookError) as of_list:
        HasCurves([Curves(), Curves()])
    with pytest.raises(HookError) as of_dict:
        HasCurves({"curves": Curves(), "mine": Curves()})

    assert str(of_list.value) == TWICE.format("curves_2")
    assert str(of_dict.value) == TWICE.format("mine")


def test_both_cures_of_a_second_one_work() -> None:
    worker, replacing, after_removal = HasCurves(), Curves(), Curves()
    worker.add_extension(replacing, "curves")
    assert worker["curves"] is replacing

    worker.remove_extension("curves")
    worker.add_extension(after_removal)
    assert worker["curves"] is after_removal


def test_a_sole_one_may_be_added_while_another_pauses() -> None:
    worker, second = HasCurves(), Curves()
    worker._registry.pause(["curves"])
    worker.add_extension(second)

    assert list(worker.extensions) == ["curves", "curves_2"]


def test_a_copy_has_the_sole_one_that_replaced_that_of_the_class() -> None:
    worker = HasCurves([SmoothCurves()])

    assert type(copy.deepcopy(worker)["curves"]) is SmoothCurves
