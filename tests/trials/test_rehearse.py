"""What a rehearsal finds before a training begins, and that it says how far it has looked."""

from __future__ import annotations

import os
import signal
from collections import namedtuple
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from tests.support.fork_server import ForkServer
from tests.support.refusals import refusal
from tests.support.training import make_batches
from train_manager import Extension, InMemory, SeededDataLoader, TrainManager, every, rehearse
from train_manager.data.reader import one_pass
from train_manager.extensions import EMA, Checkpoints, HardExamples, Log, Metrics, MetricStore, ProgressBar, TensorBoard
from train_manager.telling.findings import Finding, Findings
from train_manager.testing import tiny_manager
from train_manager.trials.few_batches import FewBatches

pytestmark = pytest.mark.slow

Usage = namedtuple("Usage", ["total", "used", "free"])


def list_findings(findings: Findings) -> list[tuple[str, str, str]]:
    return [(one.check, one.level, one.what) for one in findings]


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_a_training_without_a_fault_is_clean(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(), MetricStore(), Metrics(), EMA(0.9), epochs=9, train_dir=tmp_path)
    found = rehearse(tm)

    found.require_none()
    assert [one.check for one in found.covered] == ["rehearsal", "graphs", "disk", "checkpoint"]
    assert found.covered[0].text == (
        "6 steps in 2 epochs; of train_data, eval_data['valid'] the first batches and the last"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_schedule_that_ends_with_the_only_epoch_is_not_stepped_further() -> None:
    tm = tiny_manager(epochs=1, lr_schedule=lambda optimizer: OneCycleLR(optimizer, 0.5, total_steps=1))
    found = rehearse(tm)

    assert list(found) == []
    assert "3 steps in 1 epoch;" in found.covered[0].text


def test_an_evaluation_set_is_found_whose_last_batch_has_another_shape() -> None:
    class Net(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)

    batches = [*make_batches(5), (torch.rand(3, 3), torch.zeros(3).long())]
    found = rehearse(tiny_manager(model=Net(2, 2), optimizer=torch.optim.SGD, eval_data={"valid": batches}))

    what = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x3 and 2x2) (at stage run > train > eval > "
    what += "eval_step_epoch > eval_step_batch > eval_model_forward, with the last batch of eval_data['valid'])"
    assert list_findings(found) == [("rehearsal", "error", what)]
    assert "test_rehearse.py" in found[0].where
    assert found[0].where.endswith(" in forward")
    assert "mat1 and mat2" in str(found[0].numbers["traceback"])


def test_an_evaluation_is_rehearsed_too_that_comes_only_after_many_batches() -> None:
    class Fails(Extension):
        def post_eval(self) -> None:
            raise ZeroDivisionError

    found = rehearse(tiny_manager(Fails(), eval_at=every(500)))

    assert list_findings(found) == [("rehearsal", "error", "ZeroDivisionError (at stage run > train > eval)")]


def test_the_batch_of_an_evaluation_is_told_not_that_of_the_training_around_it() -> None:
    class Fails(Extension):
        def post_eval_step_batch(self, step_num: int) -> None:
            if step_num == 2:
                raise ZeroDivisionError

    found = rehearse(tiny_manager(Fails(), eval_at=every(2)))

    assert found[0].what.endswith("> eval_step_epoch > eval_step_batch, with batch 1 of eval_data['valid'])")


def test_a_hook_is_found_that_fails_only_at_the_end_of_an_epoch_behind_an_evaluation_that_fails_too() -> None:
    class Report(Extension):
        def post_train_step_epoch(self, train_result: Mapping[str, Any]) -> None:
            print(train_result["accuracy"])

    batches = [*make_batches(5), (torch.rand(3, 3), torch.zeros(3).long())]
    found = rehearse(tiny_manager(Report(), eval_data={"valid": batches}))

    assert [one.what.partition(":")[0] for one in found] == ["RuntimeError", "KeyError"]
    assert found[1].what == "KeyError: 'accuracy' (at stage run > train > train_step_epoch)"
    assert found[1].where.endswith(" in post_train_step_epoch")


def test_what_needs_evaluation_sets_meets_them_also_if_they_cannot_be_evaluated(tmp_path: Path) -> None:
    batches = [(torch.rand(3, 3), torch.zeros(3).long())]
    checkpoints = Checkpoints(save_at="best")
    found = rehearse(tiny_manager(checkpoints, eval_data={"valid": batches}, train_dir=tmp_path))

    assert [one.what.partition(":")[0] for one in found] == ["RuntimeError"]
    assert [one.text for one in found.covered[:2]] == [
        "up to step 1",
        "3 steps in 1 epoch; of train_data the first batches and the last",
    ]


def test_a_metric_is_found_that_is_not_a_number() -> None:
    def recall(prediction: Tensor, targets: Tensor) -> Tensor:
        return (targets > 5).sum() / (targets > 5).sum()

    found = rehearse(tiny_manager(Metrics(eval=[recall])))

    assert list_findings(found) == [("rehearsal", "warning", "'recall' of set 'valid' is nan")]


def test_a_checkpoint_is_found_that_cannot_be_loaded(tmp_path: Path) -> None:
    class Forgets(Extension):
        def state_dict(self) -> dict[str, Any]:
            return {"best": 1.0}

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            self.best = state["value"]

    found = rehearse(tiny_manager(Checkpoints(save_at=every(500)), Forgets(), train_dir=tmp_path))

    what = "a checkpoint cannot be loaded again: CheckpointError: the state of extension 'forgets' cannot be loaded "
    assert list_findings(found) == [("checkpoint", "error", what + "(KeyError: 'value')")]


def test_a_checkpoint_is_found_that_cannot_be_written(tmp_path: Path) -> None:
    class Keeps(Extension):
        def state_dict(self) -> dict[str, Any]:
            return {"path": tmp_path}

    found = rehearse(tiny_manager(Checkpoints(), Keeps(), train_dir=tmp_path))

    assert [one.level for one in found] == ["error"]
    assert "path" in found[0].what


def test_a_disk_is_found_that_is_too_small(tmp_path: Path) -> None:
    class Writes(Extension):
        def post_train_step_epoch(self, train_dir: Path, epoch_num: int) -> None:
            (train_dir / f"epoch-{epoch_num}.bin").write_bytes(bytes(1000))

    tm = tiny_manager(Writes(), epochs=100, train_dir=tmp_path)

    def room(free: int) -> Findings:
        return rehearse(tm, disk_usage=lambda path: Usage(0, 0, free))

    room(100_000).require_none()
    found = room(99_999)
    assert list_findings(found) == [("disk", "error", "the disk has 100 kB free, but 100 epochs write 100 kB at least")]
    assert found[0].numbers == {"free": 99_999, "needed": 100_000}


def test_checkpoints_are_counted_as_often_as_they_are_kept(tmp_path: Path) -> None:
    needed = []
    for keep in (1, 3, None):
        tm = tiny_manager(Checkpoints(keep=keep), epochs=100, train_dir=tmp_path)
        needed.append(rehearse(tm, disk_usage=lambda path: Usage(0, 0, 0))[0].numbers["needed"])

    assert [round(int(one) / int(needed[0]) * 3) for one in needed] == [3, 5, 100]


def test_a_train_dir_is_found_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    found = rehearse(tiny_manager(Checkpoints(), train_dir=tmp_path / "run"))

    assert [one.what.partition("Error: ")[0] for one in found] == ["train_dir cannot be written: NotADirectory"]


def test_the_numbers_of_examples_are_those_of_their_batches() -> None:
    class Index(Extension):
        def post_train_step_batch(self, inputs: Tensor, example_index: Tensor) -> None:
            assert torch.equal(inputs, x[example_index])

    x = torch.rand(20, 2)
    data = InMemory(x, torch.zeros(20).long(), batch_size=6, shuffle=True)

    rehearse(tiny_manager(Index(), train_data=data)).require_none()


class Breaks(Dataset[Any]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        if index == 39:
            raise OSError("the file is truncated")
        return torch.rand(2), index % 2


def test_data_are_found_that_do_not_number_the_examples_as_an_extension_needs_them() -> None:
    found = rehearse(tiny_manager(HardExamples()))

    assert found[0].what.startswith("InputError: HardExamples needs the numbers of examples")
    assert found[0].what.endswith("(at stage run > train)")


def test_a_dataset_is_found_whose_last_example_cannot_be_read() -> None:
    found = rehearse(tiny_manager(train_data=DataLoader(Breaks(), batch_size=4)))

    assert list_findings(found) == [
        ("rehearsal", "error", "OSError: the file is truncated (with a batch of train_data that was being read)")
    ]
    assert [one.text for one in found.covered] == ["nothing of train_data, which cannot be read"]


def test_a_training_is_rehearsed_without_an_evaluation_set_that_cannot_be_read() -> None:
    class Fails(Extension):
        def post_train_step_epoch(self) -> None:
            raise ZeroDivisionError

    found = rehearse(tiny_manager(Fails(), eval_data={"valid": DataLoader(Breaks(), batch_size=4)}))

    assert [one.what.partition(" ")[0] for one in found] == ["OSError:", "ZeroDivisionError"]


# ---- tensors with their graphs ---------------------------------------------------------------------------------------


class KeepsLosses(Extension):
    def __init__(self) -> None:
        self.by_epoch: dict[str, list[Any]] = {"losses": []}

    def post_train_step_batch(self, loss: Tensor) -> None:
        self.by_epoch["losses"].append(loss)


def test_losses_are_found_that_are_kept_with_their_graphs_with_the_attribute_that_holds_them() -> None:
    tm = tiny_manager(KeepsLosses())
    of_before = tm.model(torch.rand(2, 2))
    found = rehearse(tm)

    assert of_before.grad_fn is not None
    what = "tensors of the first 2 steps are kept with the graphs that they were computed by"
    assert list_findings(found) == [("graphs", "error", what)]
    assert found[0].where == "extension 'keeps_losses', attribute 'by_epoch'"


def test_what_a_module_or_a_function_keeps_is_found_there() -> None:
    class Net(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 2)
            self.outputs: list[Tensor] = []

        def forward(self, x: Tensor) -> Tensor:
            self.outputs.append(super().forward(x))
            return self.outputs[-1]

    kept: list[Tensor] = []
    of_module = rehearse(tiny_manager(model=Net(), optimizer=torch.optim.SGD))
    of_hook = rehearse(tiny_manager(Extension.of(post_train_step_batch=lambda loss: kept.append(loss))))

    assert [one.where for one in of_module] == ["the model, attribute 'outputs'"]
    assert [one.where for one in of_hook] == ["extension 'hooks', attribute 'post_train_step_batch'"]
    assert kept == []


def test_a_tensor_that_is_kept_once_or_replaced_in_each_step_does_not_grow() -> None:
    class Keeps(Extension):
        def post_train_step_batch(self, loss: Tensor, step_num: int) -> None:
            self.last = loss
            if step_num == 1:
                self.first = loss

    rehearse(tiny_manager(Keeps())).require_none()


# ---- what it leaves, and what it refuses -----------------------------------------------------------------------------


class Kills(Extension):
    def post_train(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def rehearse_and_die(train_dir: Path) -> None:
    rehearse(tiny_manager(Kills(), Checkpoints(), train_dir=train_dir))


def test_what_a_killed_rehearsal_has_left_is_removed_by_the_next_one(tmp_path: Path, fork_server: ForkServer) -> None:
    status = fork_server.start(rehearse_and_die, tmp_path).wait()
    left = [path.name for path in tmp_path.iterdir()]
    rehearse(tiny_manager(Checkpoints(), train_dir=tmp_path)).require_none()

    assert (status, left, list(tmp_path.iterdir())) == (-signal.SIGKILL, [".rehearsal"], [])


def test_a_train_dir_that_was_not_there_is_not_there_after_it(tmp_path: Path) -> None:
    rehearse(tiny_manager(Checkpoints(resume="fresh"), train_dir=tmp_path / "runs" / "first")).require_none()

    assert list(tmp_path.iterdir()) == []


def test_without_a_train_dir_the_disk_is_left_out_and_that_is_told() -> None:
    found = rehearse(tiny_manager())

    found.require_none()
    assert found.covered[0].text.endswith("; there is no train_dir, so the disk was not looked at")


def test_what_checks_among_the_extensions_have_found_is_told_and_is_not_kept() -> None:
    class Checks(Extension):
        def post_train(self, train_manager: TrainManager) -> None:
            train_manager.add_finding(finding)

    finding = Finding("batch leak", "note", "a norm mixes the examples", "body.norm")
    tm = tiny_manager(Checks())

    assert list(rehearse(tm)) == [finding]
    assert tm.findings == []


def test_what_prints_the_training_is_rehearsed_too_but_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    class Best(Log):
        def post_train(self, train_manager: Any = None) -> None:
            print(self.best)  # type: ignore[attr-defined]

    rehearse(tiny_manager(Log(), Metrics(), ProgressBar(force=True))).require_none()
    rehearse(tiny_manager(Log(every=1, counts="step"))).require_none()
    found = rehearse(tiny_manager(Best()))

    assert [one.what for one in found] == [
        "AttributeError: 'Best' object has no attribute 'best' (at stage run > train)"
    ]
    assert capsys.readouterr() == ("", "")


def test_an_extension_that_is_left_out_is_told_in_a_note() -> None:
    found = rehearse(tiny_manager(TensorBoard()))

    found.require_none()
    assert list_findings(found) == [
        ("rehearsal", "note", "extension 'tensor_board' was left out: it sends metrics away")
    ]


@pytest.mark.parametrize("name", ["train_data", "eval_data['valid']"])
def test_data_that_can_be_read_once_are_refused_by_name_and_not_read(name: str) -> None:
    given = iter(make_batches(4))
    tm = tiny_manager(**({"train_data": given} if name == "train_data" else {"eval_data": {"valid": given}}))
    assert refusal(lambda: rehearse(tm)) == (
        f"{name} is a list_iterator, which can be read once, so its batches cannot be put back\n"
        "  give a list, a DataLoader, or an object with __iter__"
    )
    assert len(list(given)) == 4


# ---- the batches -----------------------------------------------------------------------------------------------------


def numbers(data: Any) -> list[list[int]]:
    return [batch.tolist() for batch in data]


@pytest.mark.parametrize("batch_size", [3, 5, 10, 20])
def test_the_first_two_batches_and_the_last_are_those_of_a_pass(batch_size: int) -> None:
    rows = torch.arange(20)
    loader: DataLoader[Any] = DataLoader(rows, batch_size=batch_size)  # type: ignore[arg-type]
    seeded = SeededDataLoader(rows, batch_size=batch_size, shuffle=True)
    for data in (InMemory(rows, batch_size=batch_size, shuffle=True), seeded, loader, rows.split(batch_size)):
        found = numbers(FewBatches(data, "train_data"))
        whole = numbers(data)

        assert found == [*whole[:2], *whole[2:][-1:]], type(data)


def test_data_without_numbers_are_read_on_until_the_time_is_over() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            for number in range(50):
                read.append(number)
                yield number

    read: list[int] = []
    data = DataLoader(Stream(), batch_size=5)
    whole = FewBatches(data, "train_data")
    assert [batch[0] for batch in numbers(whole)] == [0, 5, 45]
    assert whole.missed == ""

    read.clear()
    cut = FewBatches(data, "train_data", seconds=0)
    assert [batch[0] for batch in numbers(cut)] == [0, 5, 10]
    assert cut.missed == "the end of train_data was not reached in 0 s (3 batches)"
    assert len(read) == 15


def test_a_batch_that_a_hook_changes_in_place_is_not_changed_in_the_data() -> None:
    batches = make_batches(4)
    before = [x.clone() for x, _ in batches]
    rehearse(tiny_manager(Extension.of(pre_train_step_batch=lambda batch: batch[0].mul_(2)), train_data=batches))

    assert all(torch.equal(x, old) for (x, _), old in zip(batches, before, strict=True))


def test_a_loader_collates_in_its_workers_as_in_a_training() -> None:
    x = torch.rand(30, 2)
    labelled = TensorDataset(x, torch.zeros(30).long())
    data = DataLoader(labelled, batch_size=4, num_workers=1, drop_last=True, persistent_workers=True)
    with one_pass(data) as batches:  # the workers of an evaluation stay
        assert len(list(batches)) == 7

    assert [len(batch[0]) for batch in FewBatches(data, "train_data")] == [4, 4, 4]


def test_an_error_of_the_library_itself_has_a_cure_and_no_line() -> None:
    found = rehearse(tiny_manager(optimizer=None))

    assert [(one.what, one.where, one.cure) for one in found] == [
        ("InputError: there is no optimizer to train with", "", "pass optimizer=torch.optim.AdamW")
    ]
