from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from train_manager import Extensible, Extension, always, fixture, modifies, provides
from train_manager.extensions import Log, ProgressBar
from train_manager.testing import tiny_manager

At = Callable[[str], str]


class Loop(Extensible):
    """A run of steps, and an evaluation after them."""

    def train(self) -> None:
        with self.staged("run", {"epoch_num": 0}):
            for batch in range(2):
                with self.staged("step", {"batch": batch}):
                    with self.staged("forward"):
                        self.fixtures.define("loss", self.fixtures["batch"] / 2, stage="step")  # the loss
                    self.fixtures.modify("epoch_num", 1)
            with self.staged("eval"):
                self.fixtures["result"] = 1


class Stats(Extension):
    @fixture("step")
    def square(self, loss: float) -> float:
        raise AssertionError("explaining runs nothing")


class Grads(Extension):
    @provides("norm")
    def post_step(self, loss: float) -> float:
        raise AssertionError("explaining runs nothing")


class Clip(Extension):
    @modifies("norm")
    def post_step(self, norm: float) -> float:
        raise AssertionError("explaining runs nothing")


class Curve(Extension):
    priority = 5

    @always
    def post_step(self, norm: float = 0, square: float = 0) -> None: ...

    def pre_run(self, epoch_num: int) -> None: ...

    def post_stage(self, stage: object) -> None: ...


def loop() -> Loop:
    return Loop([Curve(), Clip(), Grads(), Stats()])


def test_the_whole_tree_says_who_runs_where_and_why() -> None:
    assert (
        loop().explain(all=True)
        == """\
Loop
at every stage: Curve.post_stage of extension 'curve'; reads stage  [priority 5]
run
│  defines  epoch_num
│  pre    1. Curve.pre_run of extension 'curve'; reads epoch_num  [priority 5]
│  ends     epoch_num
├─ step
│  │  defines  batch, square, loss, norm
│  │  changes  epoch_num
│  │  lazy     square by Stats.square reads loss
│  │  post   1. Grads.post_step of extension 'grads'; reads loss; provides norm
│  │  post   2. Clip.post_step of extension 'clip'; reads norm; modifies norm
│  │            [after Grads.post_step, which provides 'norm']
│  │  post   3. Curve.post_step of extension 'curve'; reads norm, square; also on failure
│  │            [after Grads.post_step, which provides 'norm'; after Clip.post_step, which modifies
│  │            'norm']
│  │  ends     batch, square, loss, norm
│  └─ forward
│        reads    batch
└─ eval
      defines  result
      ends     result"""
    )


class Norms(Extension):
    def post_train_backward(self, model: object) -> None: ...


class Means(Extension):
    def post_eval(self, eval_results: object) -> None: ...


def test_by_default_only_the_stages_with_hooks_of_the_users_are_shown() -> None:
    assert (
        tiny_manager(Norms()).explain()
        == """\
TrainManager
run
├─ train
│  └─ train_step_epoch
│     └─ train_step_batch
│        └─ train_backward  (opened for Norms)
│              post   1. Norms.post_train_backward of extension 'norms'; reads model
└─ train_step_batch  (as above)
left out: 13 of 18 stages, and all fixtures; explain(all=True) shows them"""
    )


def test_a_star_marks_own_hooks_among_those_that_ship() -> None:
    shown = tiny_manager(Log(), ProgressBar(), Means()).explain().splitlines()

    assert shown[0] == "TrainManager  (* marks hooks of your own)"
    assert [line.strip("│├└─ ") for line in shown if "post_" in line] == [
        "post   1. Log.post_eval of extension 'log'; reads eval_results, step_num, epoch_num,",
        "* post   2. Means.post_eval of extension 'means'; reads eval_results",
    ]


def test_a_function_that_is_added_is_a_hook_of_the_users() -> None:
    tm = tiny_manager(Log())
    tm.add_extension(post_eval_step_batch=lambda loss: None)

    assert "Hooks.post_eval_step_batch" in tm.explain()
    assert "Log." not in tm.explain()


def test_own_hooks_of_a_class_that_ships_are_those_that_the_subclass_overrides() -> None:
    class Quiet(Log):
        def post_eval(self) -> None: ...  # type: ignore[override]

    shown = tiny_manager(Quiet()).explain()

    assert "Quiet.post_eval" in shown
    assert "Quiet.post_train" not in shown


def test_a_lazy_fixture_of_the_users_is_shown_as_a_hook_is() -> None:
    assert (
        Loop([Stats()]).explain()
        == """\
Loop
run
└─ step
      lazy     square by Stats.square reads loss
no hooks so far; hooks are called pre_<stage>, post_<stage> or around_<stage>
left out: 2 of 4 stages, and all fixtures; explain(all=True) shows them"""
    )


def test_hooks_and_lazy_fixtures_of_an_own_class_are_shown() -> None:
    class Own(Loop):
        def pre_eval(self) -> None: ...

        @fixture("forward")
        def scale(self) -> int:
            return 2

    assert [line.strip("│├└─ ") for line in Own().explain().splitlines()[1:-1]] == [
        *("run", "step", "forward", "lazy     scale by Own.scale"),
        *("eval", "pre    1. Own.pre_eval of the extensible itself"),
    ]


def test_lazy_fixtures_of_train_manager_itself_are_left_out() -> None:
    tm = tiny_manager(Extension.of(post_train_step_batch=lambda loss: None))

    assert "lazy " not in tm.explain()


def test_without_own_hooks_the_stages_of_extensions_that_ship_are_shown() -> None:
    shown = tiny_manager(ProgressBar()).explain().splitlines()

    assert shown[0] == "TrainManager"
    assert "│           post   1. ProgressBar.post_train_step_batch of extension 'progress_bar'; reads loss" in shown
    assert shown[-1] == "left out: 11 of 18 stages, and all fixtures; explain(all=True) shows them"


def test_without_any_hook_the_names_of_all_stages_are_shown() -> None:
    assert (
        Loop().explain()
        == """\
Loop
run
├─ step
│  └─ forward
└─ eval
no hooks so far; hooks are called pre_<stage>, post_<stage> or around_<stage>
left out: all fixtures; explain(all=True) shows them"""
    )


@pytest.mark.parametrize("about", [None, "loss", "long_names"])
@pytest.mark.parametrize("all", [True, False])
def test_no_line_is_longer_than_a_hundred_columns(about: str | None, all: bool) -> None:
    named = dict.fromkeys(["post_train_step_batch", "pre_eval"], lambda loss=0, **everything: None)
    long = type("A" + "n" * 120, (Extension,), {name: staticmethod(hook) for name, hook in named.items()})
    tm = tiny_manager(extensions={"long_names": long(), "quite_" * 20: long(), "log": Log(), "bar": ProgressBar()})

    lines = tm.explain(about, all=all).splitlines()

    assert max(map(len, lines)) == 100


def test_a_line_that_is_too_long_is_continued_below_its_text() -> None:
    extension = Extension.of(post_step=lambda loss, batch, epoch_num, stage, fixtures, extensible: None)

    assert Loop({"six_names_of_fixtures": extension}).explain().splitlines()[3:5] == [
        "      post   1. Hooks.post_step of extension 'six_names_of_fixtures'; reads loss, batch, epoch_num,",
        "                stage, fixtures, extensible",
    ]


def test_one_fixtures_life_is_told(at: At) -> None:
    assert (
        loop().explain("norm")
        == """\
'norm'
  lives in stage 'step', and ends with it
  defined by  Grads.post_step
  changed by  Clip.post_step at post_step
  read by     Curve.post_step at post_step"""
    )
    assert (
        loop().explain("loss")
        == f"""\
'loss'
  lives in stage 'step', and ends with it
  defined by  {at("the loss")}
  read by     Grads.post_step at post_step
  read by     Stats.square for the lazy fixture 'square'"""
    )


def test_the_stages_own_code_reads_and_changes_too() -> None:
    assert "  read by     stage 'forward' itself" in loop().explain("batch").splitlines()
    assert "  changed by  stage 'step' itself" in loop().explain("epoch_num").splitlines()


def test_a_fixture_that_nobody_defines_is_said() -> None:
    assert loop().explain("nothing") == "no stage, hook or provider that can be read defines 'nothing'"


@pytest.mark.parametrize("about", [None, "batch"])
def test_a_prompt_shows_an_explanation_as_it_is_printed(about: str | None) -> None:
    assert repr(loop().explain(about)) == str(loop().explain(about))


@pytest.mark.parametrize("by_name", [True, False])
def test_one_extensions_doings_are_told(by_name: bool) -> None:
    extensible = loop()
    assert (
        extensible.explain("clip" if by_name else extensible["clip"])
        == """\
extension 'clip'
  at post_step, 2 of 4: Clip.post_step of extension 'clip'; reads norm; modifies norm
      [after Grads.post_step, which provides 'norm']"""
    )
    assert extensible.explain("stats") == "extension 'stats'\n  in step: provides square reads loss"


def test_json_holds_the_same_for_tools(at: At) -> None:
    places = {tuple(place["path"]): place for place in json.loads(loop().explain(format="json"))}
    assert list(places) == [("run",), ("run", "step"), ("run", "step", "forward"), ("run", "eval")]
    step = places["run", "step"]
    assert step["defines"]["loss"] == at("the loss")
    assert (step["defines"]["norm"], step["modifies"]) == ("Grads.post_step", ["epoch_num"])
    assert places["run", "step", "forward"]["reads"] == ["batch"]
    assert step["lazy"] == {"square": {"by": "Stats.square", "reads": ["loss"]}}
    told = [(hook["extension"], hook["reads"], hook["provides"], hook["modifies"]) for hook in step["hooks"]["post"]]
    assert told == [
        ("grads", ["loss"], ["norm"], []),
        ("clip", ["norm"], [], ["norm"]),
        ("curve", ["norm", "square"], [], []),
        ("curve", ["stage"], [], []),
    ]
    assert step["hooks"]["post"][1]["because"] == ["after Grads.post_step, which provides 'norm'"]


def test_what_could_not_be_known_is_said() -> None:
    class Fits(Extensible):
        def fit(self, name: str) -> None:
            with self.staged(name):
                pass

    assert Fits().explain(all=True).splitlines()[-1].startswith("unknown: a stage whose name is made at run time")


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format is 'yaml'; give 'text', 'svg', 'json' or 'code'"):
        loop().explain(format="yaml")
