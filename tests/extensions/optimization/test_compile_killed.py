"""Compile in processes that are killed: they resume from their checkpoints, and the next start trains."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.fork_server import ForkServer
from tests.support.graphs import batches, manager, note
from tests.support.training import At
from train_manager import Extension, TrainManager, every
from train_manager.extensions import Checkpoints, Compile

pytestmark = [
    pytest.mark.slow,
    pytest.mark.whole,  # torch takes seconds to make a graph, of which it finds nothing in its cache
    pytest.mark.timeout(600),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here"),
    pytest.mark.filterwarnings("ignore:this program is not the one"),
]

NEAR = 1e-6
CURE = "runs eagerly: torch's cache has a file that was not written to its end: delete "


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def compiled(folder: str, *extensions: Extension) -> TrainManager:
    checkpoints = Checkpoints(every(1), resume=True)
    return manager(checkpoints, Compile(), *extensions, train_dir=folder, eval_data=batches(), epochs=5)


def train_until_killed(folder: str, at: int) -> None:
    def hook(step_num: int) -> None:
        if step_num == at:
            kill()

    compiled(folder, At("pre_train_step_batch", hook)).train()


def be_killed_while_a_graph_is_made(folder: str) -> None:
    from torch._inductor import cpp_builder

    usual = cpp_builder.run_compile_cmd

    def begin(cmd_line: str, cwd: str) -> None:
        usual(cmd_line, cwd)
        if ".main.cpp" in cmd_line:  # not one of the small files by which torch finds out what the processor can do
            for library in Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.main.so"):
                os.truncate(library, library.stat().st_size // 2)  # as the compiler leaves it if it is killed too
            kill()

    cpp_builder.run_compile_cmd = begin
    compiled(folder).train()


def train(folder: str) -> None:
    tm = compiled(folder)
    tm.train()
    print(tm.step_num, note(tm), note(tm, "eval"), sep="\n")


def test_a_training_that_is_killed_resumes_from_its_checkpoint(fork_server: ForkServer, tmp_path: Path) -> None:
    child = fork_server.start(train_until_killed, str(tmp_path / "run"), 9, TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    assert child.wait(300) == -signal.SIGKILL, child.errors
    steps: list[int] = []
    note_step = At("pre_train_step_batch", lambda step_num: steps.append(step_num))
    resumed, eager = compiled(str(tmp_path / "run"), note_step), manager(epochs=5)
    resumed.train()
    eager.train()

    assert (steps, note(resumed)) == ([*range(9, 20)], "one graph")
    states = zip(eager.model.state_dict().values(), resumed.model.state_dict().values(), strict=True)
    assert all(torch.allclose(a.double(), b.double(), rtol=0, atol=NEAR) for a, b in states)


def test_after_a_process_was_killed_while_it_compiles_the_next_trains(fork_server: ForkServer, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    variables: dict[str, Any] = {"TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    child = fork_server.start(be_killed_while_a_graph_is_made, str(tmp_path / "run"), **variables)
    assert child.wait(300) == -signal.SIGKILL, child.errors
    following = fork_server.start(train, str(tmp_path / "run"), **variables)

    assert following.wait(300) == 0, following.errors
    steps, *notes = following.output.splitlines()
    assert (steps, len(notes)) == ("20", 2)
    assert all(one.startswith(("one graph", CURE)) for one in notes)
