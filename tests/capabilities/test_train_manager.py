"""The rows of Train Manager itself (T): the core, the loop, the first extensions."""

from __future__ import annotations

import gc
import io
import re
import weakref
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import StepLR

from train_manager import Extensible, Extension, TrainManager, always
from train_manager.checks import check_batch_leak
from train_manager.errors import FixtureExists, FixtureNotFound
from train_manager.extensions import (
    Avg,
    Checkpoints,
    EvalTotals,
    GradientNorms,
    LossCurves,
    ProgressBar,
    default_extensions,
)
from train_manager.stages import MAP
from train_manager.testing import Recorder, tiny_manager

THE_DOCUMENTS_EXAMPLE = """
from train_manager import Extensible, Extension, staged

class MyExtension(Extension):
    def pre_stage(self, var_a):
        print('Before the stage')
    def post_stage(self, var_a, var_b):
        print('After the stage: {var_a}, {var_b}')

class MyExtensibleClass(Extensible):
    extensions = [MyExtension()]
    def my_extensible_method(self):
        with staged('my_stage', {'var_a': 1}):
            self.fixtures['var_b'] = 2

MyExtensibleClass().my_extensible_method()
"""


def test_t01_the_documents_example_runs_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    exec(THE_DOCUMENTS_EXAMPLE, {"__name__": "example"})
    assert capsys.readouterr().out == "Before the stage\nAfter the stage: {var_a}, {var_b}\n"


def test_t02_code_is_injected_before_and_after_a_named_stage() -> None:
    log: list[str] = []

    class Injected(Extension):
        def pre_my_stage(self) -> None:
            log.append("before")

        def post_my_stage(self) -> None:
            log.append("after")

    extensible = Extensible([Injected()])
    with extensible.staged("my_stage"):
        log.append("during")
    with extensible.staged("other_stage"):
        log.append("elsewhere")
    assert log == ["before", "during", "after", "elsewhere"]


def test_t03_a_fixture_is_visible_to_hooks_of_its_stage_and_of_inner_stages() -> None:
    seen: list[tuple[str, int]] = []

    class Watcher(Extension):
        def post_outer(self, batch: int) -> None:
            seen.append(("outer", batch))

        def pre_inner(self, batch: int) -> None:
            seen.append(("inner", batch))

    extensible = Extensible([Watcher()])
    with extensible.staged("outer", {"batch": 7}), extensible.staged("inner"):
        pass
    assert seen == [("inner", 7), ("outer", 7)]


def test_t03_outside_of_its_stage_the_error_names_where_a_fixture_lives() -> None:
    extensible = Extensible()
    with extensible.staged("train_step_batch", {"loss": 0.3}):
        pass
    with pytest.raises(FixtureNotFound, match="reads 'loss', which ended with stage 'train_step_batch'"):
        extensible.fixtures["loss"]


def test_t04_hooks_name_any_subset_in_any_order_and_a_default_stands_in_for_what_is_absent() -> None:
    seen: list[tuple[Any, ...]] = []

    class Watcher(Extension):
        def post_step(self, c: int, a: int) -> None:
            seen.append((c, a))

        def pre_step(self, absent: str = "default", b: int = 0) -> None:
            seen.append((absent, b))

    with Extensible([Watcher()]).staged("step", {"a": 1, "b": 2, "c": 3}):
        pass
    assert seen == [("default", 2), (3, 1)]


def test_t05_a_fixture_set_inside_the_stage_is_visible_to_post_hooks_only() -> None:
    seen: list[tuple[int, int | None]] = []

    class Watcher(Extension):
        def pre_step(self, given: int, inside: int | None = None) -> None:
            seen.append((given, inside))

        def post_step(self, given: int, inside: int) -> None:
            seen.append((given, inside))

    extensible = Extensible([Watcher()])
    with extensible.staged("step", {"given": 1}):
        extensible.fixtures["inside"] = 2
    assert seen == [(1, None), (1, 2)]


def test_t06_a_fixture_lives_as_long_as_the_stage_that_defined_it_though_an_inner_one_modified_it() -> None:
    extensible = Extensible()
    with extensible.staged("outer", {"x": 1}):
        with extensible.staged("inner"):
            extensible.fixtures.modify("x", 2)
        assert extensible.fixtures["x"] == 2
    assert "x" not in extensible.fixtures


def test_t07_accidental_redefinition_is_refused_and_names_the_defining_stage_and_line() -> None:
    extensible = Extensible()
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if text.endswith("# first"))
    with extensible.staged("outer"):
        extensible.fixtures["x"] = 1  # first
        with pytest.raises(FixtureExists, match="'x', which stage 'outer' has defined already") as error:
            with extensible.staged("inner", {"x": 2}):
                pass
        assert Path(error.value.defined_at).name == f"{Path(__file__).name}:{line}"
        assert dict(extensible.fixtures) == {"x": 1}


def test_t08_a_deliberate_change_works_by_modify_and_by_update() -> None:
    """That a change is logged comes with the log of changes (row F14)."""
    extensible = Extensible()
    with extensible.staged("step", {"x": 1, "y": 1}):
        extensible.fixtures.modify("x", 2)
        extensible.fixtures.update({"y": 3, "z": 4})
        assert dict(extensible.fixtures) == {"x": 2, "y": 3, "z": 4}


def normally(extensible: Extensible) -> None:
    with extensible.staged("step", {"x": 1}):
        extensible.fixtures["y"] = 2


def by_an_exception(extensible: Extensible) -> None:
    with suppress(ValueError), extensible.staged("step", {"x": 1}):
        extensible.fixtures["y"] = 2
        raise ValueError


def by_break(extensible: Extensible) -> None:
    for _ in range(2):
        with extensible.staged("step", {"x": 1}):
            break


def by_return(extensible: Extensible) -> None:
    with extensible.staged("step", {"x": 1}):
        return


def streaming(extensible: Extensible) -> Generator[int]:
    with extensible.staged("step", {"x": 1}):
        yield extensible.fixtures["x"]


def by_closing_a_generator(extensible: Extensible) -> None:
    generator = streaming(extensible)
    assert next(generator) == 1
    generator.close()


def by_abandoning_a_generator(extensible: Extensible) -> None:
    assert next(streaming(extensible)) == 1
    gc.collect()


@pytest.mark.parametrize(
    "leave",
    [normally, by_an_exception, by_break, by_return, by_closing_a_generator, by_abandoning_a_generator],
)
def test_t09_no_fixture_leaks_out_of_a_stage_however_it_is_left(leave: Callable[[Extensible], None]) -> None:
    extensible = Extensible()
    with extensible.staged("outer", {"kept": 0}):
        leave(extensible)
        assert dict(extensible.fixtures) == {"kept": 0}
    assert dict(extensible.fixtures) == {}


def test_t09_nothing_keeps_a_value_after_its_stage() -> None:
    class Value: ...

    class Watcher(Extension):
        def post_stage(self, value: Value) -> None: ...

    extensible = Extensible([Watcher()])
    with extensible.staged("step", {"value": Value()}):
        watched = weakref.ref(extensible.fixtures["value"])
    assert watched() is None


class Logging(Extension):
    def __init__(self, log: list[str], name: str) -> None:
        self.log = log
        self.name = name

    def post_step(self) -> None:
        self.log.append(self.name)


def test_t10_an_extension_is_added_without_touching_the_methods_code() -> None:
    log: list[str] = []
    extensible = Extensible()
    normally(extensible)
    extensible.add_extension(Logging(log, "added"))
    normally(extensible)
    assert log == ["added"]


def test_t11_an_extension_keeps_state_from_stage_to_stage() -> None:
    class Counter(Extension):
        count = 0

        def post_step(self) -> None:
            self.count += 1

    counter = Counter()
    extensible = Extensible([counter])
    for _ in range(3):
        normally(extensible)
    assert counter.count == 3


def test_t12_a_training_takes_the_default_extensions(tmp_path: Path) -> None:
    tm = tiny_manager(extensions=default_extensions(), train_dir=tmp_path)
    tm.train()
    assert isinstance(tm["progress_bar"], ProgressBar)
    assert isinstance(tm["loss_curves"], LossCurves)
    assert isinstance(tm["checkpoints"], Checkpoints)


@pytest.mark.parametrize("name", default_extensions())
def test_t12_each_default_extension_is_replaceable_by_name(name: str, tmp_path: Path) -> None:
    mine = Extension()
    tm = tiny_manager(extensions={**default_extensions(), name: mine}, train_dir=tmp_path)

    assert tm[name] is mine
    assert set(tm.extensions) == set(default_extensions())
    assert tm.check() == []


def test_t13_an_always_hook_gets_the_failure_and_neither_hides_nor_swallows_it() -> None:
    told: list[tuple[Any, ...]] = []

    class Notes(Extension):
        @always
        def post_step(self, exc_type: Any, exc_value: Any, traceback: Any) -> bool:
            told.append((exc_type, exc_value, traceback))
            return True

    with pytest.raises(ValueError, match="body") as error, Extensible([Notes()]).staged("step"):
        raise ValueError("body")
    ((exc_type, exc_value, traceback),) = told
    assert (exc_type, exc_value) == (ValueError, error.value)
    assert traceback is not None


def test_t14_the_loss_is_plotted_across_epochs_batches_and_samples(tmp_path: Path) -> None:
    curves = LossCurves()
    batches = [(torch.rand(size, 2), torch.zeros(size, dtype=torch.long)) for size in (4, 4, 2)]
    tiny_manager(curves, train_data=batches, epochs=2, train_dir=tmp_path).train()
    by_epoch, by_batch, by_sample = curves.figure().axes
    training, valid = ([panel.lines[number] for panel in (by_epoch, by_batch, by_sample)] for number in (0, 1))
    assert [np.asarray(line.get_xdata()).tolist() for line in training] == [
        [1, 2],
        [1, 2, 3, 4, 5, 6],
        [4, 8, 10, 14, 18, 20],
    ]
    assert [np.asarray(line.get_xdata()).tolist() for line in valid] == [[0, 1, 2], [0, 3, 6], [0, 10, 20]]


def test_t14_the_plots_are_files_that_need_no_network(tmp_path: Path) -> None:
    tiny_manager(LossCurves(png=True), train_dir=tmp_path).train()
    svg = (tmp_path / "plots" / "loss_curves.svg").read_text()
    assert (tmp_path / "plots" / "loss_curves.png").stat().st_size > 10_000
    assert "<script" not in svg
    assert 'href="http' not in svg


def test_t15_the_gradients_of_each_layer_are_shown_by_step_as_norms_and_by_coefficient() -> None:
    norms, seen = GradientNorms(), []

    class Weights(Extension):
        def pre_train_optimizer_step(self, model: nn.Sequential) -> None:
            seen.append([cat_gradients(layer).norm().item() for layer in (model[0], model[2])])

    tiny_manager(norms, Weights(), epochs=2).train()
    [columns] = norms.series.values()

    assert columns.labels == ["0 Linear", "2 Linear"]
    assert [column.step for column in columns.rows] == [1, 2, 3, 4, 5, 6]
    torch.testing.assert_close(torch.stack([column.mean for column in columns.rows]), torch.tensor(seen))
    assert columns.counts == [sum(weight.numel() for weight in tiny_manager().model[at].parameters()) for at in (0, 2)]
    assert "gradients of each layer" in norms._repr_html_()


def cat_gradients(layer: nn.Module) -> Tensor:
    return torch.cat([weight.grad.flatten() for weight in layer.parameters() if weight.grad is not None])


def between_layers(function: Callable[[Tensor], Tensor]) -> nn.Module:
    class Part(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return function(x)

    return nn.Sequential(nn.Linear(4, 6), Part(), nn.Linear(6, 2))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(6, -1).t(),
        lambda x: x.t().reshape(len(x), -1),
        lambda x: torch.cat([x[:, :3], x[:, 3:]]).view(len(x), -1),
        lambda x: torch.stack([x[:, :3], x[:, 3:]]).view(len(x), -1),
    ],
    ids=["view", "reshape", "cat", "stack"],
)
def test_t16_a_leak_in_the_forward_pass_is_found_in_its_module(function: Callable[[Tensor], Tensor]) -> None:
    found = check_batch_leak(between_layers(function), torch.randn(8, 4))

    assert [(one.level, one.where) for one in found] == [("error", "1 (Part)")]


@pytest.mark.parametrize(
    ("model", "batch"),
    [
        (lambda: between_layers(torch.tanh), torch.randn(8, 4)),
        (lambda: nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 2)), torch.randint(1, 9, (8, 3))),
    ],
    ids=["floats", "integers"],
)
def test_t16_a_clean_model_passes(model: Callable[[], nn.Module], batch: Tensor) -> None:
    check_batch_leak(model(), batch).require_none()


class MeanOfGradients(torch.autograd.Function):
    """The identity, whose gradient is the mean over the batch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].mean(0).expand_as(gradients[0])


def test_t17_a_leak_through_a_custom_autograd_function_is_found_in_its_module() -> None:
    found = check_batch_leak(between_layers(MeanOfGradients.apply), torch.randn(8, 4))

    assert [(one.where, one.numbers["way"]) for one in found] == [("1 (Part)", "backward")]


Batch = tuple[Tensor, Tensor]


def some_batches(n: int) -> list[Batch]:
    x = torch.rand(n, 4, 2, generator=torch.Generator().manual_seed(0))
    return [(inputs, (inputs.sum(dim=1) > 1).long()) for inputs in x]


def manager(kind: type[TrainManager], **options: Any) -> TrainManager:
    torch.manual_seed(0)
    given: dict[str, Any] = {"model": nn.Linear(2, 2), "loss": F.cross_entropy, "train_data": some_batches(2)}
    given["optimizer"] = lambda parameters: SGD(parameters, lr=0.5)
    return kind(**{**given, **options})


@pytest.mark.parametrize(
    "model", [lambda: nn.Linear(2, 2), lambda: nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))]
)
def test_t23_the_same_routines_train_and_evaluate_different_models(model: Callable[[], nn.Module]) -> None:
    tm = manager(TrainManager, model=model(), eval_data={"valid": some_batches(2)}, epochs=20)
    before = tm.eval()["valid"]["loss"]
    tm.train()

    assert tm.eval()["valid"]["loss"] < before


def test_t24_the_fixtures_of_each_stage_of_training_are_those_that_the_map_shows() -> None:
    """The document's tree, in this product's words: each name stands in the map behind the stage that owns it."""
    recorder = Recorder()
    tiny_manager(recorder).train()
    born = recorder.born[("run", "train", "train_step_epoch", "train_step_batch")]
    shown = re.search(r'staged\("train_step_batch"\): +# (.*),$', MAP, flags=re.MULTILINE)
    assert shown is not None

    assert "epoch_num" in recorder.born[("run",)]
    assert {"batch", "true_batch_size", "prediction", "loss"} <= born
    assert {"batch", "batch_num", *shown[1].split(", ")} <= born


def test_t25_named_eval_sets_are_evaluated_before_the_first_epoch_and_after_each() -> None:
    class Evaluations(Extension):
        seen: list[tuple[str, int]] = []

        def post_eval_step_epoch(self, datasource_name: str, epoch_num: int) -> None:
            self.seen.append((datasource_name, epoch_num))

    tiny_manager(Evaluations(), epochs=2, eval_data={"valid": some_batches(1), "test": some_batches(2)}).train()

    assert Evaluations.seen == [(name, epoch) for epoch in range(3) for name in ("valid", "test")]


def test_t26_a_standalone_evaluation_gives_the_same_numbers_as_one_inside_training() -> None:
    class Evaluations(Extension):
        seen: list[tuple[object, bool]] = []

        def post_eval(self, eval_results: object, standalone_eval: bool) -> None:
            self.seen.append((eval_results, standalone_eval))

    tm = tiny_manager(Evaluations())
    tm.train()
    alone = tm.eval()

    assert Evaluations.seen[-2:] == [(alone, False), (alone, True)]


def test_t27_mode_switches_and_restores_each_submodule_also_after_an_exception() -> None:
    tm = manager(TrainManager, model=nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2).eval()))
    with pytest.raises(ValueError, match="inside"), tm.mode(training=False):
        assert not tm.model.training
        raise ValueError("inside")

    assert [module.training for module in tm.model.modules()] == [True, True, False]


def test_t28_initialize_params_takes_fixtures_and_makes_xavier_weights() -> None:
    class Xavier(TrainManager):
        epoch: int | None = None

        def initialize_params(self, epoch_num: int) -> None:
            self.epoch = epoch_num
            for parameter in self.model.parameters():
                if parameter.ndim > 1:
                    nn.init.xavier_uniform_(parameter, generator=torch.Generator().manual_seed(4))

    tm = manager(Xavier)
    tm.train_epochs(0)
    expected = nn.init.xavier_uniform_(torch.empty(2, 2), generator=torch.Generator().manual_seed(4))

    assert isinstance(tm, Xavier)
    assert tm.epoch == 0
    assert torch.equal(next(tm.model.parameters()), expected)


class Sizes(Extension):
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def post_train_step_batch(self, true_batch_size: int) -> None:
        self.sizes.append(true_batch_size)


def test_t29_the_true_batch_size_of_a_ragged_batch_is_what_the_override_says() -> None:
    class Ragged(TrainManager):
        def unpack_batch(self, batch: list[Batch]) -> dict[str, Tensor]:
            inputs, targets = zip(*batch, strict=True)
            return {"inputs": torch.cat(inputs), "targets": torch.cat(targets)}

        def get_true_batch_size(self, batch: list[Batch]) -> int:
            return sum(len(inputs) for inputs, _ in batch)

    recorder = Sizes()
    (x, y), more = some_batches(2)
    manager(Ragged, train_data=[[(x[:1], y[:1]), more], [more, more, more]], extensions=[recorder]).train()

    assert recorder.sizes == [5, 12]


@pytest.mark.parametrize("form", ["model_forward", "loss_forward"])
@pytest.mark.parametrize("phase", ["train", "eval"])
def test_t30_training_and_evaluation_have_forward_methods_of_their_own(phase: str, form: str) -> None:
    seen: list[str] = []

    def own(self: TrainManager) -> Tensor:
        seen.append(self.fixtures["stage"].name)
        common: Tensor = self.call_by_name(getattr(self, form))
        return common

    kind = type("Own", (TrainManager,), {f"{phase}_{form}": own})
    manager(kind, eval_data={"valid": some_batches(1)}, train_data=some_batches(1)).train()

    assert set(seen) == {f"{phase}_{form}"}


def test_t31_an_optimizer_is_given_as_a_callable_of_the_parameters_or_as_an_object() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.load_state_dict(first.state_dict())
    manager(TrainManager, model=first, optimizer=lambda parameters: SGD(parameters, lr=0.1)).train()
    manager(TrainManager, model=second, optimizer=SGD(second.parameters(), lr=0.1)).train()

    assert torch.equal(first.weight, second.weight)


def test_t32_the_learning_rate_schedule_is_stepped_after_each_epoch() -> None:
    class Rates(Extension):
        seen: list[float] = []

        def pre_train_step_epoch(self, train_manager: TrainManager) -> None:
            optimizer = train_manager.optimizer
            assert isinstance(optimizer, Optimizer)
            self.seen.append(optimizer.param_groups[0]["lr"])

    tm = manager(TrainManager, epochs=3, lr_schedule=lambda optimizer: StepLR(optimizer, 1, 0.5), extensions=[Rates()])
    tm.train()

    assert Rates.seen == [0.5, 0.25, 0.125]


def test_t33_the_folder_of_a_run_is_a_fixture_where_extensions_write(tmp_path: Path) -> None:
    """The summary writer comes later."""

    class Notes(Extension):
        def post_train_step_epoch(self, train_dir: Path, epoch_num: int) -> None:
            (train_dir / f"epoch_{epoch_num}.txt").touch()

    tiny_manager(Notes(), epochs=2, train_dir=tmp_path / "run").train()

    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["epoch_1.txt", "epoch_2.txt"]


def test_t39_an_evaluation_counts_batches_and_samples_and_its_mean_is_weighted_by_samples() -> None:
    totals: list[tuple[int, int, float]] = []

    def note(num_batches: int, num_samples: int, cum_loss: Tensor) -> None:
        totals.append((num_batches, num_samples, cum_loss.item()))

    sizes = (6, 1)
    batches = [(torch.rand(size, 2), torch.zeros(size, dtype=torch.long)) for size in sizes]
    losses: list[float] = []
    hooks = Extension.of(post_eval_step_epoch=note, post_eval_step_batch=lambda loss: losses.append(loss.item()))
    result = tiny_manager(EvalTotals(), hooks, eval_data={"valid": batches}).eval()

    cum_loss = sum(loss * size for loss, size in zip(losses, sizes, strict=True))
    assert [total[:2] for total in totals] == [(2, 7)]
    assert totals[0][2] == pytest.approx(cum_loss)
    assert result["valid"]["loss"] == pytest.approx(cum_loss / 7)


def test_t40_any_fixture_has_a_running_mean_by_name() -> None:
    means: list[float] = []
    tiny_manager(
        Avg("step_num"), Extension.of(post_train_step_batch=lambda avg_step_num: means.append(avg_step_num))
    ).train()

    assert means == [1.0, 1.5, 2.0]


def test_t43_a_fixture_appears_in_the_progress_bar() -> None:
    terminal = io.StringIO()

    class MyFixture(Extension):
        def pre_train_step_batch(self, fixtures: dict[str, float]) -> None:
            fixtures["temperature"] = 36.6

    bar = ProgressBar(show=["loss", "temperature"], force=True, interval=0, file=terminal)
    tiny_manager(bar, MyFixture()).train()
    assert "loss=0.7" in terminal.getvalue()
    assert "temperature=36.6" in terminal.getvalue()
