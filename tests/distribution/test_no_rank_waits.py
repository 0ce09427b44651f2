"""No process is left waiting: what one of them asks for is agreed, and where it fails all others come out, and say so.

Each process lives on after its error, with the error and all that its traceback holds.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import rank_faults
from tests.support.fork_server import ForkServer
from tests.support.rank_faults import Fault, Out
from tests.support.ranks import ends_of, free_port, on_ranks, start_ranks
from train_manager.telling.errors import RankError

pytestmark = pytest.mark.slow
whole = pytest.mark.whole

STAGES = {
    "run": ("ddp", 1),
    "load_checkpoint": ("after", 1),
    "train": ("ddp", 1),
    "train_step_epoch": ("after", 1),
    "train_step_batch": ("ddp", 2),
    "train_model_forward": ("ddp", 2),
    "train_loss_forward": ("after", 2),
    "train_backward": ("ddp", 2),
    "train_optimizer_step": ("after", 2),
    "eval": ("ddp", 1),
    "eval_step_epoch": ("after", 1),
    "eval_step_batch": ("ddp", 1),
    "eval_model_forward": ("after", 1),
    "save_checkpoint": ("ddp", 1),
}
HOOKS = [
    (Fault("error", place, (len(stage) + len(place)) % 2, call), strategy)
    for stage, (strategy, call) in STAGES.items()
    for place in (f"pre_{stage}", f"post_{stage}", f"around_{stage} before", f"around_{stage} after")
    if place != "around_run after"  # the others have ended their run
]


def outs(server: ForkServer, number: int, function: Any, *args: Any, folder: Path) -> list[Out | None]:
    """Return how each process came out of its training call."""
    ends = ends_of(start_ranks(server, number, function, *args, folder=folder), folder)
    for end in ends:
        assert not end.text, end.text
    return [end.value for end in ends]


def require_named(found: list[Out | None], rank: int, text: str) -> None:
    for here, out in enumerate(found):
        if here != rank:
            assert out is not None
            assert f"rank {rank}" in out.text, out
            assert text in out.text, out
            assert re.match("RankError|CheckError", out.next_use), out


def fail_and_require(server: ForkServer, number: int, fault: Fault, strategy: str, folder: Path) -> None:
    found = outs(server, number, rank_faults.fail_at, fault, strategy, folder=folder)
    failed = found[fault.rank]
    assert failed is not None
    assert (failed.kind, failed.text.split("\n")[0]) == ("ValueError", "no luck"), failed
    require_named(found, fault.rank, f"rank {fault.rank} has failed: ValueError: no luck")
    assert "this process has left those that train together, as it has failed: ValueError: no luck" in failed.next_use


def name_of(value: Any) -> str | None:
    return f"{value.place}-{value.rank}".replace(" ", "_") if isinstance(value, Fault) else None


@whole
@pytest.mark.parametrize(("fault", "strategy"), HOOKS, ids=name_of)
def test_an_error_in_a_hook_of_one_process_names_it_in_the_others(
    fork_server: ForkServer, tmp_path: Path, fault: Fault, strategy: str
) -> None:
    fail_and_require(fork_server, 2, fault, strategy, tmp_path)


@pytest.mark.parametrize(
    ("number", "rank", "place", "strategy"),
    [
        (2, 1, "backward", "ddp"),
        pytest.param(2, 0, "forward", "ddp", marks=whole),
        pytest.param(2, 1, "forward", "after", marks=whole),
        *(pytest.param(3, rank, "forward", "ddp", marks=whole) for rank in range(3)),
        *(pytest.param(3, rank, "backward", "after", marks=whole) for rank in range(3)),
        *(pytest.param(3, rank, "post_train_step_batch", "ddp", marks=whole) for rank in range(3)),
    ],
)
def test_processes_that_wait_within_torch_are_out_while_the_one_that_failed_lives_on(
    fork_server: ForkServer, tmp_path: Path, number: int, rank: int, place: str, strategy: str
) -> None:
    fail_and_require(fork_server, number, Fault("error", place, rank, 2), strategy, tmp_path)


@whole
@pytest.mark.parametrize("rank", [0, 1])
def test_processes_in_the_default_group_of_the_program_are_out_too(
    fork_server: ForkServer, tmp_path: Path, rank: int
) -> None:
    found = outs(fork_server, 2, rank_faults.error_in_group_of_program, rank, folder=tmp_path)
    require_named(found, rank, f"rank {rank} has failed: ValueError: no luck")


@whole
@pytest.mark.parametrize("strategy", ["ddp", "after"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_skip_after_the_forward_pass_is_an_error_with_the_cure(
    fork_server: ForkServer, tmp_path: Path, rank: int, strategy: str
) -> None:
    fault = Fault("skip", "post_train_loss_forward", rank, 2)
    found = outs(fork_server, 2, rank_faults.fail_at, fault, strategy, folder=tmp_path)
    failed = found[rank]
    assert failed is not None
    assert failed.kind == "StageError"
    assert "raise SkipBatch in pre_train_step_batch, before the processes agree" in failed.text
    what = f"rank {rank} has failed: StageError: a hook has skipped a batch, or a stage of it, after the processes had "
    what += "agreed to train on it"
    require_named(found, rank, what)


@whole
@pytest.mark.parametrize("strategy", ["ddp", "after"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_nan_in_the_last_step_of_an_epoch_is_an_error_of_all(
    fork_server: ForkServer, tmp_path: Path, rank: int, strategy: str
) -> None:
    found = outs(fork_server, 2, rank_faults.nan_in_last_step, rank, strategy, folder=tmp_path)
    failed = found[rank]
    assert failed is not None
    assert failed.kind == "NonFiniteLoss"
    require_named(found, rank, f"rank {rank} has failed: NonFiniteLoss")


@pytest.mark.parametrize(("number", "rank"), [(2, 1), pytest.param(2, 0, marks=whole), pytest.param(3, 1, marks=whole)])
@pytest.mark.parametrize(
    ("what", "kind", "text"),
    [
        ("check", "CheckError", "step_nun"),
        pytest.param("data", "InputError", "train_data", marks=whole),
    ],
)
def test_a_mistake_that_one_process_finds_before_its_run_is_an_error_of_all(
    fork_server: ForkServer, tmp_path: Path, what: str, kind: str, text: str, number: int, rank: int
) -> None:
    found = outs(fork_server, number, rank_faults.wrong_on_one, what, rank, folder=tmp_path)
    assert [out and out.kind for out in found] == [
        kind if here == rank or what == "check" else "RankError" for here in range(number)
    ]
    require_named(found, rank, f"rank {rank} has failed: {kind}")
    require_named(found, rank, text)


@whole
def test_a_process_that_is_gone_is_named(fork_server: ForkServer, tmp_path: Path) -> None:
    faults = [
        Fault(act, place, rank, 2)
        for act, place in (("_exit", "post_train_step_batch"), ("kill", "forward"))
        for rank in range(3)
    ]
    for fault, found in all_at_once(fork_server, faults, tmp_path):
        require_named(found, fault.rank, f"rank {fault.rank} ended without an error")


@whole
def test_a_process_that_sleeps_is_named_by_all(fork_server: ForkServer, tmp_path: Path) -> None:
    faults = [
        Fault("sleep", place, rank, call)
        for place, call in (("post_train_step_batch", 2), ("forward", 2), ("before", 1))
        for rank in (0, 2)
    ]
    for fault, found in all_at_once(fork_server, faults, tmp_path):
        is_before_store = fault.place == "before" and fault.rank == 0
        text = "rank 0 did not answer at" if is_before_store else f"rank {fault.rank} did not come to"
        require_named(found, fault.rank, text)
        slept = found[fault.rank]
        assert slept is not None
        assert slept.kind == "RankError"


def all_at_once(server: ForkServer, faults: list[Fault], folder: Path) -> Iterator[tuple[Fault, list[Out | None]]]:
    """Train three processes for each fault, and return how they came out: they mostly wait."""
    folders = [folder / str(number) for number in range(len(faults))]
    started = []
    for fault, own in zip(faults, folders, strict=True):
        own.mkdir()
        started.append(start_ranks(server, 3, rank_faults.fail_at, fault, "ddp", folder=own))
    for fault, own, children in zip(faults, folders, started, strict=True):
        yield fault, [end.value for end in ends_of(children, own)]


REQUESTS = {
    "skip": ("pre_train_step_batch", 2),
    "stop": ("pre_train_step_batch", 2),
    "end_epoch": ("post_train_step_batch", 2),
    "eval_soon": ("post_train_step_batch", 2),
    "save at end": ("post_train_step_batch", 2),
    "SIGTERM": ("post_train_step_batch", 2),
}


def requests(rank: int) -> list[Fault]:
    found = [Fault(act, place, rank, call) for act, (place, call) in REQUESTS.items()]
    return [*found, Fault("stop", "post_train_step_batch", rank, 2), Fault("stop", "post_eval", rank)]


@pytest.mark.parametrize(
    ("number", "rank", "strategy"),
    [
        (2, 1, "ddp"),
        *(pytest.param(2, rank, "after", marks=whole) for rank in range(2)),
        pytest.param(2, 0, "ddp", marks=whole),
        *(pytest.param(3, rank, "ddp", marks=whole) for rank in range(3)),
    ],
)
def test_what_one_process_asks_for_all_do(
    fork_server: ForkServer, tmp_path: Path, number: int, rank: int, strategy: str
) -> None:
    alone = what_one_process_does(fork_server, tmp_path)
    together = on_ranks(fork_server, number, rank_faults.agree_on, requests(rank), strategy, folder=tmp_path)
    for found in together:
        for fault, one, as_alone in zip(requests(rank), found, alone, strict=True):
            assert one == {name: as_alone[name] for name in one}, fault


def what_one_process_does(server: ForkServer, folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = on_ranks(server, 1, rank_faults.agree_on, requests(0), None, folder=folder)[0]
    return found


@whole
@pytest.mark.parametrize("rank", [0, 1])
def test_a_message_that_one_process_sends_alone_is_an_error_with_both_places(
    fork_server: ForkServer, tmp_path: Path, rank: int
) -> None:
    ends = ends_of(start_ranks(fork_server, 2, rank_faults.opens_alone, rank, folder=tmp_path), tmp_path)
    for end in ends:
        assert "the processes are at different places" in end.value.text
        assert f"rank {rank} is at a sum over all processes" in end.value.text
        assert f"rank {1 - rank} is at the start of a run" in end.value.text


@whole
@pytest.mark.parametrize(
    ("end", "codes", "text"),
    [
        ("", (0, 0), ""),
        ("workers", (0, 0), ""),
        ("forked", (0, 0), ""),
        ("exit", (3, 3), ""),
        ("exit alone", (1, 3), "rank 1 ended without an error"),
        ("error alone", (1, 1), "rank 1 has failed: ValueError: no luck"),
    ],
)
def test_a_program_ends_without_noise(
    fork_server: ForkServer, tmp_path: Path, end: str, codes: tuple[int, int], text: str
) -> None:
    children = start_programs(fork_server, end, tmp_path)
    for child in children:
        child.read_to_the_end()
    assert tuple(child.wait() for child in children) == codes
    assert text in children[0].errors
    if not any(codes):
        assert [child.errors for child in children] == ["", ""]
    assert not re.search("Warning|atexit|Exception in thread|terminate", children[0].errors + children[1].errors)


def start_programs(server: ForkServer, end: str, folder: Path) -> list[Any]:
    """Start programs whose errors and exit codes are their own."""
    own = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
    return [server.start(rank_faults.train_and_end, end, cwd=folder, RANK=str(rank), **own) for rank in range(2)]


@whole
def test_many_runs_in_one_program_do_not_hang(fork_server: ForkServer, tmp_path: Path) -> None:
    assert on_ranks(fork_server, 2, rank_faults.many_runs, 50, folder=tmp_path) == [50, 50]


@whole
def test_the_default_group_of_the_program_is_used_and_stays(fork_server: ForkServer, tmp_path: Path) -> None:
    assert on_ranks(fork_server, 2, rank_faults.in_group_of_program, folder=tmp_path) == [(True, 2.0)] * 2


def test_a_program_that_listens_at_the_port_and_does_not_answer_is_not_waited_for(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    port = free_port()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        started = start_ranks(fork_server, 2, rank_faults.meets_within, 0.3, folder=tmp_path, MASTER_PORT=str(port))
        first, second = ends_of(started, tmp_path)

    text = f"rank 0 did not answer at 127.0.0.1:{port} within 0.3 s\n"
    text += "  has it come to the training? give Distributed(timeout=...) more seconds"
    assert (type(second.error), str(second.error)) == (RankError, text)
    assert isinstance(first.error, RankError)
    assert "address already in use" in first.text
