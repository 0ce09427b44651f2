"""Rows F09-F35 of the capabilities that the engine serves: declared access, derived order, the check, explain."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from train_manager import (
    CheckError,
    Extensible,
    Extension,
    FixtureNotFound,
    HookError,
    OrderError,
    fixture,
    modifies,
    priority,
    provides,
)
from train_manager.core.outside import GROUP


class Learner(Extensible):
    """The document's step, small."""

    strict = True

    def step(self, x: float = 2.0) -> None:
        with self.staged("step", {"x": x}):
            with self.staged("gradient"):
                self.fixtures.define("loss", x * x, stage="step")
            with self.staged("update"):
                pass


class Halve(Extension):
    @modifies("loss")
    def post_gradient(self, loss: float) -> float:
        return loss / 2


class Noise(Extension):
    @provides("noise", stage="step")
    def pre_gradient(self, x: float) -> float:
        return x / 10


class Add(Extension):
    @modifies("loss")
    @priority(1)
    def post_gradient(self, loss: float, noise: float) -> float:
        return loss + noise


class Watch(Extension):
    def __init__(self) -> None:
        self.seen: list[float] = []

    def post_gradient(self, loss: float) -> None:
        self.seen.append(loss)


def test_f09_a_permitted_hook_modifies_the_state_and_the_next_reader_sees_it() -> None:
    watch = Watch()
    Learner([watch, Halve()]).step()
    assert watch.seen == [2.0]


def test_f12_extensions_of_other_packages_are_found_in_one_entry_point_group() -> None:
    """A package that is really there is in tests/core/test_outside.py."""
    assert GROUP == "train_manager.extensions"
    with pytest.raises(LookupError, match="no installed package offers an extension 'grad_noise'"):
        Learner().add_extension("grad_noise")


def test_f13_explain_tells_who_runs_in_which_order_and_why() -> None:
    lines = Learner([Watch(), Add(), Halve(), Noise()]).explain().splitlines()
    posts = [line.partition("post")[2].strip() for line in lines if "post  " in line]
    assert posts == [
        "1. Halve.post_gradient of extension 'halve'; reads loss; modifies loss",
        "2. Add.post_gradient of extension 'add'; reads loss, noise; modifies loss  "
        "[after Halve.post_gradient, which modifies 'loss']",
        "3. Watch.post_gradient of extension 'watch'; reads loss  "
        "[after Halve.post_gradient, which modifies 'loss'; after Add.post_gradient, which modifies 'loss']",
    ]


def test_f15_access_to_what_is_not_alive_is_refused_before_the_first_stage() -> None:
    early = Extension.of(pre_gradient=lambda loss: None)
    with pytest.raises(CheckError, match="wants 'loss', which is not alive at pre_gradient: it lives in stage 'step'"):
        Learner([early]).check()


def test_f16_a_write_without_permission_is_refused() -> None:
    thief = Extension.of(post_gradient=lambda fixtures: fixtures.modify("loss", 0.0))
    with pytest.raises(HookError, match=r"Hooks.post_gradient writes 'loss' without declaring it"):
        Learner([thief]).step()


def test_f20_explain_gives_the_interface_of_each_stage_from_its_source() -> None:
    text = Learner().explain()
    assert text.splitlines()[1:3] == ["step", "│  defines  x, loss"]


def test_f22_a_hook_reads_by_default_and_transforms_on_request() -> None:
    class Reads(Extension):
        def post_gradient(self, loss: float) -> float:
            return 0.0

    watch = Watch()
    Learner([Reads(), watch]).step()
    Learner([Reads(), Halve(), watch]).step()
    assert watch.seen == [4.0, 2.0]


def test_f26_the_state_is_the_store_of_live_fixtures() -> None:
    learner = Learner()
    with learner.staged("step", {"x": 1}):
        assert dict(learner.fixtures) == {"x": 1}
    assert dict(learner.fixtures) == {}


def test_f27_access_is_controlled_by_what_a_signature_and_its_decorators_declare() -> None:
    hooks = Learner([Add()])._registry.hooks
    assert [(hook.call.asks_for, hook.written) for hook in hooks] == [(("loss", "noise"), ("loss",))]


def test_f28_a_hook_declares_what_it_reads_provides_and_modifies() -> None:
    told = Learner([Noise(), Add()]).explain("add")
    assert "reads loss, noise; modifies loss" in told


def test_f29_a_write_write_conflict_is_an_error_at_construction_naming_both() -> None:
    class Double(Extension):
        @modifies("loss")
        def post_gradient(self, loss: float) -> float:
            return 2 * loss

    with pytest.raises(OrderError, match=r"Halve.post_gradient .* and Double.post_gradient .* both modify 'loss'"):
        Learner([Halve(), Double()])


def test_f30_a_conflict_is_resolved_by_running_first() -> None:
    watch = Watch()
    for extensions in ([Halve(), Add(), Noise(), watch], [watch, Add(), Noise(), Halve()]):
        Learner(extensions).step()
    assert watch.seen == [2.2, 2.2]


def test_f30_there_is_no_conflict_between_writers_of_different_fixtures() -> None:
    Learner([Halve(), Noise()]).step()


def test_f30_an_unresolvable_conflict_is_two_providers_of_one_fixture() -> None:
    class Other(Noise):
        pass

    with pytest.raises(OrderError, match="both provide 'noise' in stage 'step'"):
        Learner([Noise(), Other()])


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_f31_writers_run_before_readers_whatever_the_order_of_registration(order: Sequence[int]) -> None:
    watch = Watch()
    extensions: list[Extension] = [watch, Add(), Noise(), Halve()]
    Learner([extensions[index] for index in order]).step()
    assert watch.seen == [2.2]


def test_f32_a_reader_with_no_writer_is_an_error() -> None:
    with pytest.raises(CheckError, match="wants 'noise', which is never alive at post_gradient"):
        Learner([Add()]).check()
    with pytest.raises(FixtureNotFound):
        Learner([Add()]).step()


def test_f32_a_cycle_is_an_error_that_prints_the_cycle() -> None:
    class Hen(Extension):
        @provides("hen")
        def post_step(self, egg: int) -> int:
            return egg

    class Egg(Extension):
        @provides("egg")
        def post_step(self, hen: int) -> int:
            return hen

    with pytest.raises(OrderError, match=r"Egg.post_step waits for 'hen' of Hen.post_step; Hen.post_step waits for"):
        Learner([Hen(), Egg()])


def test_f35_stages_of_ones_own_have_hooks_fixtures_and_providers() -> None:
    class Gan(Extensible):
        def train(self) -> None:
            with self.staged("discriminator_step", {"real": 1}):
                pass

    class Judge(Extension):
        seen: Any = None

        @fixture("discriminator_step")
        def fake(self, real: int) -> int:
            return -real

        def post_discriminator_step(self, fake: int) -> None:
            self.seen = fake

    judge = Judge()
    gan = Gan([judge])
    assert gan.check() == []
    gan.train()
    assert judge.seen == -1
