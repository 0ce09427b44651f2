from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.rebuilding.recorded_parts import Head, Net, Penalised, Probe, WidthTrainer, scaled_loss, weights_and_biases
from tests.support.fork_server import ForkServer
from tests.support.programs import code, script
from train_manager import Extension, SeededDataLoader, TrainManager, every, recorded
from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.errors import ArgumentError, CheckpointError
from train_manager.extensions import (
    EMA,
    Checkpoints,
    ClipGradients,
    CodeRecord,
    Log,
    LossCurves,
    MLflow,
    TensorBoard,
)
from train_manager.rebuilding.recorded import parameters_of
from train_manager.schedules.rules import Every

ROOT = Path(__file__).parents[1]
StepLR = torch.optim.lr_scheduler.StepLR

pytestmark = pytest.mark.filterwarnings("ignore:Probe has no hook")


def batches() -> list[tuple[Tensor, Tensor]]:
    inputs = torch.linspace(-1, 1, 24).reshape(12, 2)
    return list(zip(inputs.split(4), (inputs.sum(dim=1) > 0).long().split(4), strict=True))


def net() -> Net:
    return Net(8, head=Head(3))


def manager(**arguments: Any) -> TrainManager[Any]:
    usual = {"model": net(), "loss": scaled_loss, "optimizer": partial(torch.optim.AdamW, lr=1e-2), "epochs": 2}
    return TrainManager(**{**usual, "train_data": batches(), "eval_data": {"valid": batches()}, **arguments})


def saved(tm: TrainManager[Any], train_dir: Path) -> Path:
    return CheckpointFolder(train_dir / "checkpoints").write(tm.step_num, tm.state_dict(), {})


def trained(tmp_path: Path, **arguments: Any) -> TrainManager[Any]:
    """A manager that has trained and been saved."""
    tm = manager(**arguments)
    tm.train()
    saved(tm, tmp_path)
    return tm


def refused(path: Path, *args: Any, **arguments: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        TrainManager.from_checkpoint(path, *args, **arguments)
    return str(caught.value)


# ---- what comes back -------------------------------------------------------------------------------------------------


def test_the_model_comes_back_with_its_weights_and_arguments(tmp_path: Path) -> None:
    tm = trained(tmp_path)
    again = TrainManager.from_checkpoint(tmp_path)

    assert type(again.model) is Net
    assert (again.model.width, again.step_num, again.epoch_num) == (8, 6, 2)
    assert all(new.equal(old) for new, old in zip(again.model.parameters(), tm.model.parameters(), strict=True))


def test_a_training_continues_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    tm = trained(tmp_path, seed=3, lr_schedule=partial(StepLR, step_size=1), extensions=[EMA(0.9), ClipGradients(1.0)])
    again = TrainManager.from_checkpoint(tmp_path, train_data=batches(), eval_data={"valid": batches()})
    tm.train_epochs(2)
    again.train_epochs(2)

    assert all(new.equal(old) for new, old in zip(again.model.parameters(), tm.model.parameters(), strict=True))
    assert [row["loss"] for row in again.history.epochs] == [row["loss"] for row in tm.history.epochs]


def test_a_checkpoint_of_within_a_phase_continues_as_this_phase_is_opened_again(tmp_path: Path) -> None:
    def head_of(tm: TrainManager[Any]) -> AbstractContextManager[None]:
        return tm.phase("head", optimizer=lambda _: torch.optim.Adam(tm.model.head.parameters(), lr=0.1), epochs=2)

    tm = manager()
    with tm.run(), head_of(tm):
        tm.train_epochs(1)
        saved(tm, tmp_path)
        tm.train_epochs(1)
    again = TrainManager.from_checkpoint(tmp_path, train_data=batches(), eval_data={"valid": batches()})
    with again.run(), head_of(again):
        again.train_epochs(1)

    assert (again.step_num, again.optimizer_updates) == (6, tm.optimizer_updates)
    assert all(new.equal(old) for new, old in zip(again.model.parameters(), tm.model.parameters(), strict=True))


def stranger(tm: TrainManager[Any], folder: Path, **parameters: Any) -> Path:
    """A checkpoint whose recorded arguments somebody has edited."""
    state = tm.state_dict()
    state["parameters"]["arguments"] |= parameters
    return CheckpointFolder(folder / "checkpoints").write(tm.step_num, state, {})


def test_a_small_file_that_asks_for_much_memory_is_refused_before_it_is_taken(tmp_path: Path) -> None:
    huge = {"in_features": 10**6, "out_features": 10**6, "bias": True, "device": None, "dtype": None}
    path = stranger(manager(), tmp_path, model={"$object": "torch.nn:Linear", "arguments": huge})

    told = refused(path).splitlines()
    limit = 256_000_000 + 4 * sum(file.stat().st_size for file in path.iterdir())
    assert told[:2] == [
        f"the checkpoint says how to make tensors of 4,000,000,000,000 bytes, and its files allow for {limit:,}",
        "  if you trust it, make the model yourself: from_checkpoint(path, model=...)",
    ]


def test_paths_and_addresses_of_a_checkpoint_are_not_used_and_told(tmp_path: Path) -> None:
    code = CodeRecord(folder=tmp_path / "secret")
    sinks = [MLflow("sqlite:///there"), TensorBoard("/etc")]
    extensions = [code, Checkpoints(resume=True, at=tmp_path / "other"), *sinks]
    saved(manager(extensions=extensions), tmp_path)

    with pytest.warns(UserWarning, match="paths and addresses") as told:
        again = TrainManager.from_checkpoint(tmp_path)
    assert str(told[0].message) == (
        "paths and addresses in a checkpoint are not used: extensions.code_record.folder, extensions.checkpoints.at, "
        'extensions.m_lflow.uri, extensions.tensor_board.folder (overrides={"extensions.code_record.folder": ...} '
        "gives one)"
    )
    assert (again["code_record"].folder, again["checkpoints"].at) == (None, "last")
    assert (again["m_lflow"].uri, again["tensor_board"].folder) == (None, None)


def test_all_other_arguments_come_back(tmp_path: Path) -> None:
    arguments = {"epochs": 7, "steps_per_epoch": 2, "seed": 3, "eval_at": ("epoch", every(4)), "device": "cpu"}
    tm = manager(**arguments, extensions={"average": EMA(0.9), "log": Log(every=every(9)), "probe": Probe(5)})
    saved(tm, tmp_path)
    again = TrainManager.from_checkpoint(tmp_path)

    assert (again.epochs, again.steps_per_epoch, again.seed) == (7, 2, 3)
    assert (again.eval_at.start, again.eval_at.epoch) == (False, True)
    assert isinstance(again.eval_at.schedules[0], Every)
    assert (again["average"].decay, again["probe"].depth) == (0.9, 5)
    assert repr(again["log"]) == repr(tm["log"])
    assert again.device == torch.device("cpu")


def test_what_is_made_again_has_the_same_record(tmp_path: Path) -> None:
    trained(tmp_path, extensions=[Probe(5)])
    again = TrainManager.from_checkpoint(tmp_path)
    first, second = saved(again, tmp_path / "again"), TrainManager.from_checkpoint(tmp_path / "again")

    assert first.exists()
    assert parameters_of(second) == parameters_of(again)


def test_a_model_that_the_loss_holds_is_the_model(tmp_path: Path) -> None:
    model = net()
    trained(tmp_path, model=model, loss=Penalised(model, 0.5))
    again = TrainManager.from_checkpoint(tmp_path)

    assert again.objective.model is again.model  # type: ignore[union-attr]
    assert again.objective.weight == 0.5  # type: ignore[union-attr]


def test_a_ready_optimizer_of_the_model_comes_back_as_one_of_the_new_model(tmp_path: Path) -> None:
    model = net()
    trained(tmp_path, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    again = TrainManager.from_checkpoint(tmp_path)

    assert again.optimizer.defaults["momentum"] == 0.9
    assert again.optimizer.param_groups[0]["params"] == list(again.model.parameters())


def test_a_function_that_makes_the_optimizer_of_the_model_comes_back_with_its_groups(tmp_path: Path) -> None:
    trained(tmp_path, optimizer=partial(weights_and_biases, lr=0.1))
    again = TrainManager.from_checkpoint(tmp_path, {"optimizer.lr": 0.2})

    assert [len(group["params"]) for group in again.optimizer.param_groups] == [2, 2]
    assert [group["lr"] for group in again.optimizer.param_groups] == [0.2, 0.2]


def test_a_path_may_be_a_checkpoint_its_folder_or_the_train_dir(tmp_path: Path) -> None:
    tm = trained(tmp_path)
    tm.train_epochs(1)
    newest = saved(tm, tmp_path)
    first = sorted((tmp_path / "checkpoints").iterdir())[0]

    assert [TrainManager.from_checkpoint(path).step_num for path in (first, newest, newest.parent, tmp_path)] == [
        6,
        9,
        9,
        9,
    ]


def test_data_and_train_dir_are_none_unless_they_are_given(tmp_path: Path) -> None:
    trained(tmp_path, train_dir=tmp_path)
    again = TrainManager.from_checkpoint(tmp_path)

    assert (again.train_data, again.eval_data, again.train_dir) == (None, {}, None)
    assert TrainManager.from_checkpoint(tmp_path, train_dir="other").train_dir == Path("other")


def test_a_subclass_is_made_with_its_own_arguments(tmp_path: Path) -> None:
    tm = WidthTrainer(5, epochs=3)
    saved(tm, tmp_path)
    again = WidthTrainer.from_checkpoint(tmp_path, {"epochs": 4}, train_data=batches())

    assert type(again) is WidthTrainer
    assert (again.width, again.model.width, again.epochs) == (5, 5, 4)
    assert again.train_data is not None


FRESH = """
import sys
import tests.rebuilding.recorded_parts
from train_manager import TrainManager
tm = TrainManager.from_checkpoint(sys.argv[1], {"model.threshold": 0.7})
print(type(tm.model).__name__, tm.model.threshold, tm.model.width, tm.step_num, list(tm.extensions), tm["ema"].decay)
"""


def test_a_fresh_process_that_imports_the_module_makes_the_training_again(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    trained(tmp_path, extensions=[EMA(0.9)])
    done = fork_server.run(code, FRESH, str(tmp_path))

    assert (done.output, done.errors) == ("Net 0.7 8 6 ['ema'] 0.9\n", "")


@pytest.mark.whole  # tests/rebuilding shows what is said
def test_a_fresh_process_that_does_not_import_it_is_told_so(tmp_path: Path) -> None:
    trained(tmp_path)
    without = FRESH.replace("import tests.rebuilding.recorded_parts\n", "")
    command = [sys.executable, "-c", without, str(tmp_path)]  # the fork server has imported what other tests run in it
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.stderr.endswith(
        "model is made by 'tests.rebuilding.recorded_parts:Net', which this program has not registered\n"
        "  If you trust it, import the module that defines it, and write @recorded above it there\n"
    )


SCRIPT = """
from torch import nn
from train_manager import recorded

@recorded
class Net(nn.Linear):
    def __init__(self, width=2):
        super().__init__(2, width)

if __name__ == "__main__":
    from train_manager.rebuilding.recorded import parameters_of
    print(parameters_of(Net()))
"""


def test_a_script_records_its_classes_as_another_program_imports_them(tmp_path: Path, fork_server: ForkServer) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    done = fork_server.run(script, str(tmp_path / "train.py"))

    assert done.output == "{'$object': 'train:Net', 'arguments': {'width': 2}}\n"


def test_extensions_that_write_rest_without_a_train_dir(tmp_path: Path) -> None:
    trained(tmp_path, train_dir=tmp_path, extensions=[EMA(0.9), LossCurves()])
    again = TrainManager.from_checkpoint(tmp_path)
    again.eval({"valid": batches()})

    assert list(again.extensions) == ["ema", "loss_curves"]
    with pytest.warns(match=r"so these extensions rest: loss_curves \(pass train_dir=... to let them write\)"):
        TrainManager.from_checkpoint(tmp_path, train_data=batches())


@recorded
class Numbers:
    """A data set that a checkpoint can name."""

    def __init__(self, count: int) -> None:
        self.items = [(torch.tensor([i / 10, -i / 10]), i % 2) for i in range(count)]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.items[index]


def test_recorded_data_come_back_where_they_were(tmp_path: Path) -> None:
    tm = manager(train_data=SeededDataLoader(Numbers(10), batch_size=4, shuffle=True), eval_data=None)
    tm.train_steps(2)
    saved(tm, tmp_path)
    again = TrainManager.from_checkpoint(tmp_path)
    tm.train()
    again.train()

    assert all(new.equal(old) for new, old in zip(again.model.parameters(), tm.model.parameters(), strict=True))


# ---- overrides -------------------------------------------------------------------------------------------------------


def test_a_threshold_is_overridden_for_an_evaluation(tmp_path: Path) -> None:
    tm = trained(tmp_path)
    again = TrainManager.from_checkpoint(tmp_path, {"model.threshold": 0.7}, eval_data={"valid": batches()})

    assert again.model.threshold == 0.7
    assert again.eval() == tm.eval()


def test_options_of_the_optimizer_and_the_schedule_are_those_that_were_given(tmp_path: Path) -> None:
    trained(tmp_path, lr_schedule=partial(StepLR, step_size=1, gamma=0.5))
    overrides = {"optimizer.lr": 1.0, "optimizer.weight_decay": 0.3, "lr_schedule.gamma": 0.1}
    again = TrainManager.from_checkpoint(tmp_path, overrides, train_data=batches())
    group = again.optimizer.param_groups[0]

    assert (group["lr"], group["initial_lr"], group["weight_decay"]) == (0.25, 1.0, 0.3)
    again.train_epochs(1)
    assert group["lr"] == pytest.approx(0.025)


def test_the_options_of_one_of_two_optimizers_are_overridden_by_its_name(tmp_path: Path) -> None:
    saved(manager(optimizer={"body": torch.optim.SGD, "head": partial(torch.optim.SGD, lr=0.1)}), tmp_path)
    again = TrainManager.from_checkpoint(tmp_path, {"optimizer.head.lr": 0.5})

    assert [one.param_groups[0]["lr"] for one in again.optimizers.values()] == [0.001, 0.5]


@recorded
class WithHyperParameters(TrainManager[Any]):
    def __init__(self, hyper: dict[str, Any], **rest: Any) -> None:
        super().__init__(optimizer=partial(torch.optim.SGD, lr=hyper["lr"]), **rest)


def test_an_override_that_the_saved_state_undoes_is_said(tmp_path: Path) -> None:
    tm = WithHyperParameters({"lr": 0.1}, model=net(), loss=scaled_loss, train_data=batches())
    saved(tm, tmp_path)
    with pytest.warns(RuntimeWarning) as warned:
        WithHyperParameters.from_checkpoint(tmp_path, {"hyper.lr": 0.3})

    assert [str(one.message) for one in warned] == [
        "this program is not the one that wrote the checkpoint; for each difference, one of the two is used:\n"
        "  - lr of optimizer 'optimizer': program 0.3, checkpoint 0.1, used 0.1"
    ]


def test_an_argument_replaces_what_was_recorded(tmp_path: Path) -> None:
    trained(tmp_path)
    again = TrainManager.from_checkpoint(tmp_path, {"epochs": 20}, seed=4)

    assert (again.epochs, again.seed) == (20, 4)


def test_an_unknown_place_to_override_is_refused(tmp_path: Path) -> None:
    trained(tmp_path)

    assert refused(tmp_path, {"model.treshold": 0.7}) == (
        "there is no 'model.treshold' to override\n  did you mean 'model.threshold'?"
    )
    assert refused(tmp_path, {"epoch": 3}) == "there is no 'epoch' to override\n  did you mean 'epochs'?"


def test_an_unknown_argument_is_refused_as_the_constructor_does(tmp_path: Path) -> None:
    trained(tmp_path)

    with pytest.raises(ArgumentError, match=r"TrainManager has no argument 'max_epochs'\n  it is called 'epochs' here"):
        TrainManager.from_checkpoint(tmp_path, max_epochs=3)


# ---- what is missing -------------------------------------------------------------------------------------------------


def test_all_that_is_needed_and_not_recorded_is_named_at_once(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3))
    trained(
        tmp_path,
        model=model,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        extensions={"mine": Extension.of(post_run=lambda: None)},
    )

    assert refused(tmp_path) == (
        "the checkpoint does not say how to make model, optimizer and extensions.mine\n"
        "  model was a Sequential, which is not recorded: pass model=...\n"
        "  optimizer was a lambda: pass optimizer=...\n"
        '  extensions.mine was a Hooks, which is not recorded: pass overrides={"extensions.mine": ...}'
    )


def test_what_is_missing_may_be_given(tmp_path: Path) -> None:
    tm = trained(tmp_path, model=nn.Sequential(nn.Linear(2, 3)))
    again = TrainManager.from_checkpoint(tmp_path, model=nn.Sequential(nn.Linear(2, 3)))

    assert again.model[0].weight.equal(tm.model[0].weight)


def test_an_optimizer_with_two_groups_is_asked_for(tmp_path: Path) -> None:
    model = net()
    groups = [{"params": list(part.parameters())} for part in (model.body, model.head)]
    trained(tmp_path, model=model, optimizer=torch.optim.SGD(groups, lr=0.1))

    assert "optimizer was a ready SGD, whose parameters are not simply those of the model" in refused(tmp_path)


def test_a_model_of_another_size_is_refused_with_the_shapes(tmp_path: Path) -> None:
    trained(tmp_path)

    assert "head.layer.weight" in refused(tmp_path, {"model.head.classes": 4})


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"{tmp_path} holds no sound checkpoint\n  it has none"


def test_a_state_without_recorded_parameters_is_refused(tmp_path: Path) -> None:
    CheckpointFolder(tmp_path).write(1, {"format": 1, "model": {}}, {})

    assert refused(tmp_path) == "the checkpoint has no recorded parameters of a TrainManager"


def test_a_subclass_with_arguments_of_its_own_that_is_not_recorded_is_told(tmp_path: Path) -> None:
    class Own(TrainManager):
        def __init__(self, width: int) -> None:
            super().__init__(model=Net(width))

    saved(Own(3), tmp_path)
    with pytest.raises(CheckpointError) as caught:
        Own.from_checkpoint(tmp_path)

    assert str(caught.value) == (
        "the training was made with the argument 'model', which Own does not have\n"
        "  write @recorded above Own, so that its checkpoints have its own arguments"
    )


# ---- what a manager keeps --------------------------------------------------------------------------------------------


def test_data_that_can_be_read_once_are_not_read_for_the_record() -> None:
    read = []

    def stream() -> Iterator[tuple[Tensor, Tensor]]:
        read.append(1)
        yield from batches()

    tm = manager(train_data=stream(), eval_data=None)

    assert read == []
    assert parameters_of(tm)["arguments"]["train_data"] == {"$not_rebuildable": "a generator, which is not recorded"}


def test_a_path_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        TrainManager.from_checkpoint(tmp_path / "runs")
    assert str(caught.value) == f"there is nothing at {tmp_path / 'runs'}\n  give a checkpoint, or a train_dir"
