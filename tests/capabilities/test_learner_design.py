"""The rows of the proposed Learner design (F), as far as the core and the loop serve them."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from tests.support.training import weights
from train_manager import (
    Extensible,
    Extension,
    Fixtures,
    SkipBatch,
    TrainManager,
    every,
    fixture,
    modifies,
    periodically,
    priority,
    provides,
    scheduled,
)
from train_manager.core.scope import Scope
from train_manager.errors import CheckError, FixtureNotFound, HookError, OrderError, StageError
from train_manager.extensions import (
    EMA,
    SAM,
    Accumulate,
    ClipGradients,
    LossCurves,
    LRSchedule,
    MixedPrecision,
    Mixup,
    WarmUp,
    default_extensions,
)
from train_manager.testing import Recorder, tiny_manager


def test_f01_one_object_of_model_data_and_training_logic_runs_epochs_and_the_loss_falls() -> None:
    torch.manual_seed(0)
    x = torch.rand(64, 3)
    batches = [(part, part.sum(dim=1, keepdim=True)) for part in x.split(16)]
    losses: list[float] = []

    class Losses(Extension):
        def post_eval(self, eval_results: dict[str, dict[str, float]]) -> None:
            losses.append(eval_results["validation"]["loss"])

    learner = TrainManager(
        model=nn.Linear(3, 1),
        train_data=batches[:3],
        eval_data={"validation": batches[3:]},
        loss=F.mse_loss,
        optimizer=lambda parameters: SGD(parameters, lr=0.1),
        epochs=4,
        extensions=[Losses()],
    )
    learner.train()

    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 5


class WatchAll(Extension):
    """Reads all there is, before and after each stage."""

    read = 0

    def pre_stage(self, **fixtures: object) -> None:
        self.read += len(fixtures)

    def post_stage(self, **fixtures: object) -> None:
        self.read += len(fixtures)

    def around_stage(self) -> Iterator[None]:
        yield


def test_f02_removing_every_extension_gives_the_same_weights_bit_for_bit() -> None:
    with_extensions, without = tiny_manager(WatchAll(), Recorder(), epochs=2), tiny_manager(epochs=2)
    removed = tiny_manager(WatchAll(), Recorder(), epochs=2)
    for name in list(removed.extensions):
        removed.remove_extension(str(name))
    for tm in (with_extensions, without, removed):
        tm.train()

    assert torch.equal(weights(with_extensions.model), weights(without.model))
    assert torch.equal(weights(removed.model), weights(without.model))


def tiny_batches(n: int) -> list[tuple[Tensor, Tensor]]:
    return [(torch.ones(2, 2), torch.zeros(2, dtype=torch.long))] * n


def test_f03_a_training_is_the_declared_sequence_of_stages() -> None:
    recorder = Recorder()
    tiny_manager(recorder, train_data=tiny_batches(1), eval_data={"valid": tiny_batches(1)}).train()
    evaluation = ["eval", "eval_step_epoch", "eval_step_batch", "eval_model_forward", "eval_loss_forward"]
    epoch = ["train_step_epoch", "train_step_batch", "train_model_forward", "train_loss_forward"]
    epoch += ["train_backward", "train_optimizer_step"]

    assert recorder.stages == ["run", "load_checkpoint", "train", *evaluation, *epoch, *evaluation]


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
    """Here through the open door, `fixtures`; F22 and F28 show the declared way."""

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


def slower(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.StepLR(optimizer, 10)


def test_f11_best_recipes_go_together() -> None:
    norms: list[float] = []
    recipes = [EMA(decay=0.5), ClipGradients(max_norm=0.5), WarmUp(steps=3), LRSchedule(slower)]
    tm = tiny_manager(*recipes, epochs=5)
    tm.add_extension(post_train_step_batch=lambda grad_norm: norms.append(float(grad_norm)))
    before = tm.eval()["valid"]["loss"]
    tm.train()

    assert len(norms) == 15
    assert tm.eval()["valid"]["loss"] < before


@pytest.mark.parametrize(
    "practice",
    [lambda: Mixup(num_classes=2), lambda: Accumulate(2), MixedPrecision, SAM],
    ids=["mixup", "accumulation", "mixed precision", "sharpness-aware minimisation"],
)
def test_f11_a_practice_is_an_extension_that_changes_the_training_and_not_the_loop(practice: Any) -> None:
    recorder, plain_recorder = Recorder(), Recorder()
    tm, plain = tiny_manager(practice(), recorder, epochs=2), tiny_manager(plain_recorder, epochs=2)
    tm.train()
    plain.train()

    assert type(tm) is TrainManager
    assert not weights(tm.model).equal(weights(plain.model))
    assert dict.fromkeys(recorder.stages) == dict.fromkeys(plain_recorder.stages)


INSTALLED = """
from train_manager import Extension, provides

class InstalledNoise(Extension):
    @provides("noise", stage="step")
    def pre_gradient(self, x):
        return x / 8
"""


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package as pip leaves it behind, that offers an extension by name."""
    (tmp_path / "f12_package.py").write_text(INSTALLED)
    info = tmp_path / "f12_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: f12-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[train_manager.extensions]\nf12_noise = f12_package:InstalledNoise\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("f12_package", None)


@pytest.mark.usefixtures("_installed")
def test_f12_an_extension_of_another_package_is_added_by_name_and_its_hook_runs() -> None:
    watch = Watch()
    learner = Learner([Add(), watch])
    added = learner.add_extension("f12_noise")
    learner.step()
    assert (type(added).__name__, learner["f12_noise"]) == ("InstalledNoise", added)
    assert watch.seen == [4.25]


def test_f13_explain_tells_who_runs_in_which_order_and_why() -> None:
    lines = Learner([Watch(), Add(), Halve(), Noise()]).explain().splitlines()
    first = next(number for number, line in enumerate(lines) if "post  " in line)
    assert [line.strip("│ ") for line in lines[first : first + 6]] == [
        "post   1. Halve.post_gradient of extension 'halve'; reads loss; modifies loss",
        "post   2. Add.post_gradient of extension 'add'; reads loss, noise; modifies loss",
        "[after Halve.post_gradient, which modifies 'loss']",
        "post   3. Watch.post_gradient of extension 'watch'; reads loss",
        "[after Halve.post_gradient, which modifies 'loss'; after Add.post_gradient, which",
        "modifies 'loss']",
    ]


def test_f15_access_to_what_is_not_alive_is_refused_before_the_first_stage() -> None:
    early = Extension.of(pre_gradient=lambda loss: None)
    with pytest.raises(CheckError, match="wants 'loss', which is not alive at pre_gradient: it lives in stage 'step'"):
        Learner([early]).check()


def test_f16_a_write_without_permission_is_refused() -> None:
    thief = Extension.of(post_gradient=lambda fixtures: fixtures.modify("loss", 0.0))
    with pytest.raises(HookError, match=r"Hooks.post_gradient writes 'loss' without declaring it"):
        Learner([thief]).step()


def interface(extensible: Extensible) -> dict[str, tuple[set[str], set[str], set[str]]]:
    """What each stage defines, reads and modifies, as ``explain`` tells it."""
    places = json.loads(extensible.explain(format="json"))
    return {p["stage"]: (set(p["defines"]), set(p["reads"]), set(p["modifies"])) for p in places}


def test_f20_explain_gives_the_interface_of_the_stages_of_training() -> None:
    told = interface(tiny_manager())
    parts = {"batch", "losses", "inputs", "targets", "true_batch_size", "prediction", "loss"}
    flags = {
        "batch_num",
        "datasource_name",
        "update_begins",
        "update_ends",
        "last_batch",
        "example_index",
        "data_seconds",
        "loss_parts",
    }
    assert told["train_step_batch"][0] == {*parts, *flags, "global_batch_size"}
    assert told["train_step_batch"][1] >= {"batch", "loss"}
    assert told["train_model_forward"][:2] == (set(), {"inputs", "losses"})
    assert told["train_loss_forward"][1] >= {"prediction", "targets"}
    assert told["train_backward"][:2] == ({"backward_loss", "optimizer", "optimizer_name"}, {"backward_loss"})
    assert told["eval_step_batch"][0] == parts
    assert told["eval_step_batch"][1] >= {"batch", "loss", "true_batch_size"}


def test_f21_a_hook_between_gradient_and_update_sees_the_gradients_and_changes_them() -> None:
    class Clip(Extension):
        norms: list[float] = []

        def post_train_backward(self, train_manager: TrainManager) -> None:
            norm = nn.utils.clip_grad_norm_(train_manager.model.parameters(), max_norm=1e-9)
            self.norms.append(norm.item())

    clipped = tiny_manager(Clip())
    before = weights(clipped.model).detach().clone()
    clipped.train()

    assert min(Clip.norms) > 0
    torch.testing.assert_close(weights(clipped.model).detach(), before, rtol=0, atol=1e-7)


def test_f22_a_hook_reads_by_default_and_transforms_on_request() -> None:
    class Reads(Extension):
        def post_gradient(self, loss: float) -> None:
            loss = 0.0  # noqa: F841  # which nothing else sees

    watch = Watch()
    Learner([Reads(), watch]).step()
    Learner([Reads(), Halve(), watch]).step()
    assert watch.seen == [4.0, 2.0]


@pytest.mark.parametrize(("kind", "log"), [("pre", ["hook", "stage"]), ("post", ["stage", "hook"])])
def test_f23_hooks_precede_or_follow_a_stage_by_their_names(kind: str, log: list[str]) -> None:
    ran: list[str] = []
    extension = Extension()
    vars(extension)[f"{kind}_fit"] = lambda: ran.append("hook")
    with Extensible([extension]).staged("fit"):
        ran.append("stage")
    assert ran == log


def test_f26_the_state_is_the_store_of_live_fixtures() -> None:
    learner = Learner()
    with learner.staged("step", {"x": 1}):
        assert dict(learner.fixtures) == {"x": 1}
    assert dict(learner.fixtures) == {}


def test_f27_access_is_controlled_by_what_a_signature_and_its_decorators_declare() -> None:
    """Alive are x, loss and noise: the hook gets the two it names, and changes the one it may."""
    got: list[dict[str, float]] = []

    class Accesses(Extension):
        @modifies("loss")
        def post_gradient(self, loss: float, noise: float, fixtures: Fixtures) -> float:
            got.append({"loss": loss, "noise": noise})
            with pytest.raises(HookError, match=r"Accesses.post_gradient writes 'noise' without declaring it"):
                fixtures.modify("".join(["noise"]), 0.0)  # a name that the check cannot read
            return loss + noise

    after: list[tuple[float, float]] = []
    last = Extension.of(post_step=lambda loss, noise: after.append((loss, noise)))
    Learner([Noise(), Accesses(), last]).step()
    assert (got, after) == ([{"loss": 4.0, "noise": 0.2}], [(4.2, 0.2)])


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
    with pytest.raises(FixtureNotFound, match="wants 'noise', which no open stage provides"):
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


@pytest.mark.parametrize("stage", ["pre_train_step_batch", "post_train_model_forward", "pre_train_optimizer_step"])
def test_f33_a_hook_cancels_the_step(stage: str) -> None:
    def cancel(step_num: int) -> None:
        if tm.samples_seen == 16 and not cancelled:
            cancelled.append(step_num)
            raise SkipBatch

    cancelled: list[int] = []
    tm = tiny_manager(Extension.of(**{stage: cancel}))
    result = tm.train()

    assert cancelled == [1]
    assert (result.steps, result.updates, result.epochs) == (2, 2, 1)


class StepsRun(Extension):
    """At which steps its hook runs."""

    def __init__(self) -> None:
        self.at: list[int] = []

    def post_train_step_batch(self, step_num: int) -> None:
        self.at.append(step_num)


def test_f33_a_hook_is_throttled_by_steps_or_by_seconds() -> None:
    now = 0.0

    def tick() -> None:
        nonlocal now
        now += 10

    seldom, each_minute = StepsRun(), StepsRun()
    scheduled(seldom, "post_train_step_batch", every(4))
    scheduled(each_minute, "post_train_step_batch", periodically(60, clock=lambda: now))
    tiny_manager(Extension.of(pre_train_step_batch=tick), seldom, each_minute, epochs=5).train()

    assert seldom.at == [4, 8, 12]
    assert each_minute.at == [6, 12]


def test_f33_a_shipped_extension_takes_a_throttle(tmp_path: Path) -> None:
    curves = LossCurves(update=every(4))
    tiny_manager(curves, epochs=2, train_dir=tmp_path).train()
    assert curves.training["batch"].x == [1, 2, 3, 4, 5, 6]
    assert (tmp_path / "plots" / "loss_curves.svg").exists()


def test_f34_the_hooks_and_their_order_are_a_picture() -> None:
    tm = tiny_manager(extensions=default_extensions(files=False))
    picture = ElementTree.fromstring(tm.explain(format="svg"))
    hooks = [hook["hook"] for place in json.loads(tm.explain(format="json")) for hook in place["hooks"]["pre"]]

    assert hooks
    assert set(hooks) <= set(re.split(r"\s+", " ".join(picture.itertext())))


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
