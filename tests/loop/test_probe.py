"""``tm.probe``: the prediction for another batch, and that the training does not notice it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.resuming import differences, state_of
from tests.support.training import At, Batch, make_batches, sgd, weights
from train_manager import Extension, TrainManager, fixture
from train_manager.data.random_state import preserve_random_state
from train_manager.errors import StageError
from train_manager.extensions import MixedPrecision
from train_manager.loop.losses import add_loss, report_loss
from train_manager.testing import Recorder, tiny_manager

OTHER: Batch = (torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0, 1]))


def manager(kind: type[TrainManager], *extensions: Extension, model: nn.Module | None = None) -> TrainManager:
    torch.manual_seed(0)
    data, loss = make_batches(3), F.cross_entropy
    model = model or nn.Linear(2, 2)
    given: dict[str, Any] = {"model": model, "loss": loss, "optimizer": sgd, "train_data": data, "eval_data": data[:1]}
    return kind(**given, extensions=extensions)


class Probe(Extension):
    """Probe with a batch at one hook, and keep what came out."""

    def __init__(self, hook: str = "post_train_step_batch", batch: Any = OTHER) -> None:
        self.batch, self.seen = batch, list[Any]()
        setattr(self, hook, self.look)

    def look(self, train_manager: TrainManager) -> None:
        self.seen.append(train_manager.probe(self.batch))


# ---- what it gives ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["post_train_step_batch", "post_train_model_forward", "pre_eval_model_forward"])
def test_the_prediction_is_that_of_the_model_for_the_other_batch(hook: str) -> None:
    probe, expected = Probe(hook), list[Tensor]()
    tm = manager(TrainManager, probe, At(hook, lambda model: expected.append(model(OTHER[0]))))
    tm.train()

    assert [one.tolist() for one in probe.seen] == [one.tolist() for one in expected]
    assert expected


def test_own_methods_and_lazy_fixtures_see_the_other_batch_and_get_theirs_back() -> None:
    sizes, masks, afterwards = list[Any](), list[Tensor](), list[Tensor]()

    class Masked(TrainManager):
        def unpack_batch(self, batch: Batch) -> Batch:
            return batch[0] * 2, batch[1]

        def get_true_batch_size(self, targets: Tensor) -> int:
            return len(targets) * 10

        @fixture("train_step_batch")
        def mask(self, inputs: Tensor) -> Tensor:
            masks.append(inputs > 0)
            return masks[-1]

        def model_forward(self, inputs: Tensor, mask: Tensor, true_batch_size: int) -> Tensor:
            sizes.append(true_batch_size)
            return self.model(inputs * mask)  # type: ignore[no-any-return]

    probe = Probe()
    tm = manager(Masked, probe, At("post_train_step_batch", lambda mask: afterwards.append(mask)))
    tm.eval_data = {}
    tm.train_steps(1)

    assert probe.seen[0].tolist() == tm.model(OTHER[0] * 2).tolist()
    assert sizes == [40, 20]
    assert [len(mask) for mask in masks] == [4, 2]
    assert afterwards[0] is masks[0]


def test_a_lazy_fixture_that_cleans_up_does_so_after_each_computation() -> None:
    log: list[str] = []

    class Held(TrainManager):
        @fixture("train_step_batch")
        def held(self, inputs: Tensor) -> Iterator[int]:
            log.append(f"take {len(inputs)}")
            yield len(inputs)
            log.append(f"leave {len(inputs)}")

        def train_model_forward(self, inputs: Tensor, held: int) -> Tensor:
            return self.model(inputs)  # type: ignore[no-any-return]

    manager(Held, Probe(), At("post_train_step_batch", lambda: log.append("probed"))).train_steps(1)

    assert log == ["take 4", "take 2", "leave 2", "probed", "leave 4"]


def test_a_lazy_fixture_that_was_modified_keeps_its_value() -> None:
    class Sized(TrainManager):
        @fixture("train_step_batch")
        def size(self, inputs: Tensor) -> int:
            return len(inputs)

        def model_forward(self, model: nn.Module, inputs: Tensor, size: int = 0) -> Tensor:
            sizes.append(size)
            prediction: Tensor = model(inputs)
            return prediction

    sizes: list[int] = []
    sets = At("pre_train_step_batch", lambda fixtures: fixtures.modify("size", 7))
    manager(Sized, sets, Probe("post_train_step_batch")).train_steps(1)

    assert [size for size in sizes if size] == [7, 7]


def test_what_a_hook_has_defined_for_the_batch_stays() -> None:
    class Scaled(TrainManager):
        def model_forward(self, inputs: Tensor, scale: float = 1.0) -> Tensor:
            return self.model(inputs) * scale  # type: ignore[no-any-return]

    def define(train_manager: TrainManager) -> None:
        train_manager.fixtures.define("scale", 3.0)

    probe = Probe()
    tm = manager(Scaled, At("pre_train_step_batch", define), probe)
    tm.train_steps(1)

    assert probe.seen[0].tolist() == (tm.model(OTHER[0]) * 3).tolist()


def test_a_fixture_that_the_forward_pass_defines_for_the_batch_is_defined_anew() -> None:
    hidden: list[int] = []

    class Defining(TrainManager):
        def model_forward(self, inputs: Tensor) -> Tensor:
            self.fixtures.define("hidden", len(inputs), stage="train_step_batch")
            return self.model(inputs)  # type: ignore[no-any-return]

    look = At("post_train_step_batch", lambda fixtures: hidden.append(fixtures["hidden"]))
    tm = manager(Defining, Probe(), look)
    tm.train_data = make_batches(1)
    tm.train_epoch()

    assert hidden == [4]


def test_batches_without_targets_and_of_another_size_are_probed() -> None:
    seen: list[Any] = []

    class Looking(TrainManager):
        def model_forward(self, inputs: Tensor, fixtures: Any) -> Tensor:
            names = ("targets", "prediction", "loss")
            seen.append((fixtures["true_batch_size"], [name for name in names if name in fixtures]))
            return self.model(inputs)  # type: ignore[no-any-return]

    tm = manager(Looking, Probe(batch=OTHER[0]))
    tm.eval_data = {}
    tm.train_steps(1)

    assert seen == [(4, ["targets"]), (2, [])]


def test_the_mode_and_the_precision_are_those_of_the_batch() -> None:
    class Noted(nn.Linear):
        seen: list[tuple[bool, bool]]

        def forward(self, input: Tensor) -> Tensor:
            self.seen.append((self.training, torch.is_grad_enabled()))
            return super().forward(input)

    model = Noted(2, 2)
    model.seen = []
    train, evaluate = Probe(), Probe("post_eval_step_batch")
    manager(TrainManager, train, evaluate, MixedPrecision(), model=model).train_epochs(1)

    assert {one.dtype for one in train.seen + evaluate.seen} == {torch.bfloat16}
    assert model.seen == [(False, False)] * 2 + [(True, True)] * 6 + [(False, False)] * 2


def test_the_precision_is_that_of_the_forward_pass_also_in_a_hook_of_the_backward_pass() -> None:
    probe = Probe("pre_train_backward")
    manager(TrainManager, probe, MixedPrecision()).train_steps(1)

    assert probe.seen[0].dtype == torch.bfloat16


def test_a_probe_without_gradients_leaves_the_forward_pass_its_gradients_under_mixed_precision() -> None:
    class Own(TrainManager):
        is_probed = True

        def train_batch(self) -> None:
            if self.is_probed:
                with torch.no_grad():
                    self.probe(OTHER)
            self.update(self.forward())

    class Plain(Own):
        is_probed = False

    probed, plain = (manager(kind, MixedPrecision()) for kind in (Own, Plain))
    probed.train(), plain.train()

    assert weights(probed.model).tolist() == weights(plain.model).tolist()


def test_it_works_in_an_own_train_batch_and_after_it() -> None:
    class Own(TrainManager):
        def train_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
            seen.append(self.probe(OTHER))
            self.update(F.cross_entropy(model(inputs), targets))

    seen: list[Tensor] = []
    probe = Probe()
    tm = manager(Own, probe)
    before = tm.model(OTHER[0]).tolist()
    tm.train_steps(1)

    assert [seen[0].tolist(), probe.seen[0].tolist()] == [before, tm.model(OTHER[0]).tolist()]


# ---- what it leaves --------------------------------------------------------------------------------------------------


class Penalised(nn.Sequential):
    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = super().forward(input)  # type: ignore[no-untyped-call]
        add_loss(output.square().mean(), "penalty")
        report_loss(output.mean(), "mean")
        return output


class OwnBatch(TrainManager):
    def train_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
        self.probe((inputs.flip(0), targets)) if "probes" in self else None
        self.update(F.cross_entropy(model(inputs), targets))


def gone_through(kind: type[TrainManager], *extensions: Extension) -> TrainManager:
    torch.manual_seed(0)
    tm = manager(kind, *extensions, model=Penalised(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 2)))
    torch.manual_seed(1)
    tm.train_epochs(2)
    return tm


class Probes(Extension):
    def _look(self, train_manager: TrainManager, batch: Batch) -> None:
        with preserve_random_state():
            train_manager.probe((batch[0].flip(0), batch[1]))

    post_train_step_batch = post_eval_step_batch = _look


def test_a_training_that_is_probed_is_bit_for_bit_the_same() -> None:
    watched, plain = gone_through(TrainManager, Probes()), gone_through(TrainManager)
    one, other = state_of(watched), state_of(plain)
    one["extensions"].pop("probes")

    assert differences(one, other) == []


def test_the_losses_of_a_batch_do_not_count_those_of_the_probe() -> None:
    def losses_of(*extensions: Extension, kind: type[TrainManager]) -> list[dict[str, float]]:
        seen: list[dict[str, float]] = []

        def note(losses: dict[str, Tensor]) -> None:
            seen.append({name: value.item() for name, value in losses.items()})

        torch.manual_seed(0)
        tm = manager(kind, *extensions, At("post_train_step_batch", note), model=Penalised(nn.Linear(2, 2)))
        tm.train_steps(3)
        return seen

    assert losses_of(Probes(), kind=OwnBatch) == losses_of(kind=OwnBatch)
    assert losses_of(Probes(), kind=TrainManager) == losses_of(kind=TrainManager)


def test_no_stage_is_seen_and_no_hook_runs_also_not_that_of_an_own_stage() -> None:
    class Staged(TrainManager):
        def model_forward(self, inputs: Tensor) -> Tensor:
            with self.staged("encode", {"width": 2}):
                return self.model(inputs) * self.fixtures["width"]  # type: ignore[no-any-return]

    def ran(*extensions: Extension) -> list[str]:
        recorder = Recorder()
        manager(Staged, recorder, *extensions).train_steps(2)
        return recorder.hooks

    probe = Probe()

    assert ran(probe) == ran()
    assert len(probe.seen) == 2


def test_an_error_of_the_forward_pass_leaves_the_fixtures_as_they_were() -> None:
    seen: list[bool] = []

    def look(train_manager: TrainManager, batch: Batch, fixtures: Any) -> None:
        names, prediction = list(fixtures), fixtures["prediction"]
        with pytest.raises(RuntimeError, match="shapes"):
            train_manager.probe((torch.rand(2, 3), OTHER[1]))
        seen.append(list(fixtures) == names and fixtures["inputs"] is batch[0])
        seen.append(fixtures["prediction"] is prediction and fixtures["true_batch_size"] == 4)

    manager(TrainManager, At("post_train_step_batch", look)).train_steps(2)

    assert seen == [True] * 4


def test_a_strict_manager_may_be_probed() -> None:
    class Strict(TrainManager):
        strict = True

    probe = Probe()
    manager(Strict, probe).train_steps(1)

    assert len(probe.seen) == 1


# ---- refused ---------------------------------------------------------------------------------------------------------

CURE = "call it in a hook such as post_train_step_batch, or in train_batch(self, ...)"


def raised(hook: str) -> str:
    texts: list[str] = []

    def look(train_manager: TrainManager) -> None:
        with pytest.raises(StageError) as caught:
            train_manager.probe(OTHER)
        texts.append(str(caught.value))

    manager(TrainManager, At(hook, look)).train_steps(1)
    return texts[0]


def test_outside_of_a_run_it_is_refused() -> None:
    with pytest.raises(StageError) as caught:
        tiny_manager().probe(OTHER)

    assert (
        str(caught.value)
        == f"probe() was called, but no batch is being trained on or evaluated\n  open stages  none\n  {CURE}"
    )


@pytest.mark.parametrize(
    ("hook", "what", "path"),
    [
        ("pre_train", "probe() was called, but no batch is being trained on or evaluated", "run > train"),
        (
            "pre_train_step_batch",
            "probe() was called before the batch was unpacked, so there are no inputs",
            "run > train > train_step_epoch > train_step_batch",
        ),
        (
            "pre_eval_step_batch",
            "probe() was called before the batch was unpacked, so there are no inputs",
            "run > train > eval > eval_step_epoch > eval_step_batch",
        ),
    ],
)
def test_without_inputs_it_is_refused(hook: str, what: str, path: str) -> None:
    assert raised(hook) == f"{what}\n  open stages  {path}\n  {CURE}"


def test_a_model_that_trains_itself_is_refused() -> None:
    class Itself:
        def train_step(self, batch: Any) -> Tensor:
            return torch.zeros(())

    texts: list[str] = []

    def look(train_manager: TrainManager) -> None:
        with pytest.raises(StageError) as caught:
            train_manager.probe(OTHER)
        texts.append(str(caught.value))

    TrainManager(model=Itself(), train_data=make_batches(1), extensions=[At("post_train_step_batch", look)]).train()

    assert texts == [
        "probe() was called, but Itself trains itself: it has no forward pass\n"
        "  open stages  run > train > train_step_epoch > train_step_batch\n"
        "  call the model itself"
    ]
