"""What several processes cannot train with is refused in each of them, before one waits for another."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.fork_server import ForkServer
from tests.support.rank_loops import MISTAKES, mistake
from tests.support.ranks import on_ranks
from train_manager import Extension, InputError, fixture
from train_manager.distribution.environment import require_own_gpu
from train_manager.errors import FixtureExists
from train_manager.extensions import Distributed
from train_manager.testing import tiny_manager

SMALL = "makes batches of 1, which 2 processes cannot share\n"
SMALL += "  give a batch_size of at least 2: all processes together make a step"
OUTSIDE = "an optimizer has parameters outside of the model, as of a loss with weights ((3,))\n"
OUTSIDE += '  give Distributed(strategy="after"), which gathers the gradients of every parameter'
SAME = (
    "of which each process would train on the same batches\n  give SeededDataLoader(dataset, ...), InMemory or Rows; "
)
SAME += "or a DataLoader with a DistributedSampler, whose batch_size is that of one process"
SHARE = "  give the rows of this process as Share(batch, examples, of), of train_manager.data.shares"

TEXTS = {
    "strategy": "strategy must be 'ddp', 'after' or 'fsdp', but is 'dpp'",
    "device by number": "device is 'cuda:1', which the processes of a machine would share\n"
    '  give device="cuda": each process has the GPU of its LOCAL_RANK',
    "fewer GPUs": "this machine has 1 GPUs for 2 processes\n"
    "  start as many processes as GPUs: torchrun --nproc-per-node 1",
    "batch_size": f"train_data (InMemory) {SMALL}",
    "batch_size of a set": f"train_data['b'] (InMemory) {SMALL}",
    "batch_size of an evaluation": f"eval_data['odd'] (InMemory) {SMALL}",
    "batch_size in eval": f"eval_data['odd'] (InMemory) {SMALL}",
    "loss with weights": OUTSIDE,
    "loss with weights in an own loop": OUTSIDE,
    "no shares": f"train_data is a list, {SAME}",
    "no shares in a set": f"train_data['b'] is a list, {SAME}",
    "duplicates": "the DistributedSampler of eval_data['odd'] gives 52 examples of 51\n"
    "  give SeededDataLoader(dataset, ...), of which each example counts once",
    "own and whole": "eval_data['odd']['a'] gives each process batches of its own, and another set of "
    "eval_data['odd'] does not\n  give SeededDataLoader(dataset, ...), of which each example counts once",
    "trains itself": "TrainsItself trains itself, so its gradients cannot be made one over all processes\n"
    "  give an nn.Module with a loss and an optimizer, or train in one process",
    "trains itself in an own loop": "TrainsItself trains itself, so its gradients cannot be made one over all "
    "processes\n  give an nn.Module with a loss and an optimizer, or train in one process",
    "no parameters": "Plus has no parameter that is trained, so there are no gradients to make one\n"
    "  train in one process",
    "rows": "train_on_batch cannot cut this batch for several processes: it has 12 rows, and a Tensor of shape (3,)\n"
    + SHARE,
    "an object": "train_on_batch cannot cut this batch for several processes: it has 12 rows, and a PackedSequence\n"
    + SHARE,
    "own batches": "train_on_batch was given a batch, but train_data (DataLoader) gives each process batches of its "
    f"own\n{SHARE}",
    "added in a run": "Distributed was added while a run is open, so its processes have not begun the run together\n"
    "  open stages  run\n  add it before the run: extensions=[Distributed()]",
    "paused": "phase() cannot pause Distributed: the processes train together until the run ends\n"
    "  open stages  run\n  leave it out of without=",
}
OF_STAGES = ("added in a run", "paused")
IN_A_RUN = (
    "loss with weights in an own loop",
    "trains itself in an own loop",
    "rows",
    "an object",
    "own batches",
    "paused",
)
QUICK = ("batch_size of a set",)
CASES = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.whole) for name in MISTAKES]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_each_process_refuses_it_by_itself(fork_server: ForkServer, tmp_path: Path, name: str) -> None:
    kind = "StageError" if name in OF_STAGES else "InputError"
    ends = on_ranks(fork_server, 2, mistake, name, folder=tmp_path, LOCAL_WORLD_SIZE="2")

    assert [end[:2] for end in ends] == [(kind, TEXTS[name])] * 2
    assert name in IN_A_RUN or [messages for _, _, messages in ends] == [0, 0]


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine with two GPUs, as far as torch says; returns the GPUs that "cuda" has been made to mean."""
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    place = {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    return chosen


def test_cuda_is_the_gpu_of_the_process_from_distributed_on(two_gpus: list[int]) -> None:
    Distributed()

    assert two_gpus == [1]


def test_a_process_alone_keeps_its_gpu(two_gpus: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    Distributed()

    assert two_gpus == []


def test_a_model_that_was_moved_before_distributed_is_refused(two_gpus: list[int]) -> None:
    class OnFirst(torch.nn.Module):
        def parameters(self, recurse: bool = True) -> Any:
            return iter([SimpleNamespace(is_cuda=True, device=torch.device("cuda:0"))])

    with pytest.raises(InputError) as caught:
        require_own_gpu(torch.device("cuda"), OnFirst(), 1)

    assert str(caught.value) == (
        "the model is on cuda:0, but this process has cuda:1\n"
        '  make Distributed() before the model is moved, or give TrainManager device="cuda"'
    )


# ---- the fixture device ----------------------------------------------------------------------------------------------


def test_a_hook_can_name_the_device_and_sees_another_one_that_is_set_in_the_run() -> None:
    seen: list[str] = []
    tm = tiny_manager(Extension.of(pre_predict=lambda device: seen.append(str(device))), device="cpu")
    with tm.run():
        tm.predict(torch.rand(2, 2))
        tm.device = torch.device("cpu:0")
        tm.predict(torch.rand(2, 2))

    assert seen == ["cpu", "cpu:0"]


class Own(Extension):
    """Has a fixture of its own that is called device."""

    @fixture("run")
    def device(self) -> str:
        return "mine"


def test_a_fixture_of_this_name_is_the_extensions_if_the_training_has_no_device() -> None:
    seen: list[Any] = []
    tiny_manager(Own(), Extension.of(pre_train=lambda device: seen.append(device))).train()

    assert seen == ["mine"]


def test_a_hook_that_names_the_device_of_a_training_without_one_is_refused_as_the_run_begins() -> None:
    tm = tiny_manager(Extension.of(pre_train=lambda device: None))
    with pytest.raises(InputError) as caught:
        tm.train()

    first, *_, last = str(caught.value).splitlines()
    assert first.endswith("needs a device, but there is none")
    assert last == '  pass device="cpu"; or ask for inputs, and take inputs.device'


def test_a_fixture_of_this_name_beside_a_device_of_the_training_is_an_error() -> None:
    with pytest.raises(FixtureExists) as caught:
        tiny_manager(Own(), device="cpu").train()

    assert "Own.device defines 'device', which stage 'run' has defined already" in str(caught.value)
    assert "for a value of your own: another name" in str(caught.value)
