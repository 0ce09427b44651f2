from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from train_manager import Extensible, Extension, always, fixture, modifies, provides

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
        loop().explain()
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
│  │  post   2. Clip.post_step of extension 'clip'; reads norm; modifies norm  \
[after Grads.post_step, which provides 'norm']
│  │  post   3. Curve.post_step of extension 'curve'; reads norm, square; also on failure  \
[after Grads.post_step, which provides 'norm'; after Clip.post_step, which modifies 'norm']
│  │  ends     batch, square, loss, norm
│  └─ forward
│        reads    batch
└─ eval
      defines  result
      ends     result"""
    )


def test_one_fixtures_life_is_told(at: At) -> None:
    assert (
        loop().explain("norm")
        == """\
'norm'
  lives in stage 'step', defined by Grads.post_step; ends with it
  changed by  Clip.post_step at post_step
  read by     Curve.post_step at post_step"""
    )
    assert (
        loop().explain("loss")
        == f"""\
'loss'
  lives in stage 'step', defined by {at("the loss")}; ends with it
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
  at post_step, 2 of 4: Clip.post_step of extension 'clip'; reads norm; modifies norm  \
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

    assert Fits().explain().splitlines()[-1].startswith("unknown: a stage whose name is made at run time")


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format is 'yaml'; give 'text', 'svg', 'json' or 'code'"):
        loop().explain(format="yaml")
