from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from queue import Queue
from threading import Barrier
from typing import Any

import pytest
import torch

from train_manager import Extensible
from train_manager.errors import InputError, StageError
from train_manager.tools import in_parallel


class Worker(Extensible):
    def work(self) -> tuple[str, ...]:
        with self.staged("work"):
            return self.fixtures.path


def test_results_come_in_the_order_of_the_works_from_branches_beside_the_open_stages() -> None:
    worker, second_is_done = Worker(), Barrier(2, timeout=60)

    def first(branch: Worker) -> tuple[str, ...]:
        second_is_done.wait()
        return branch.work()

    def second(branch: Worker) -> str:
        path = branch.work()
        second_is_done.wait()
        return path[0] + " too"

    with worker.staged("around"):
        results: list[Any] = in_parallel(worker, first, second)

        assert results == [("work",), "work too"]
        assert worker.fixtures.path == ("around",)


VARIABLE = ContextVar("variable", default="unset")


def test_a_work_has_the_modes_and_the_context_of_the_caller() -> None:
    def modes(_: object) -> list[Any]:
        casts = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *casts, VARIABLE.get()]

    token = VARIABLE.set("here")
    with torch.no_grad(), torch.autocast("cpu", torch.float16):
        without_grad = in_parallel(Worker(), modes)
    with torch.inference_mode():
        in_inference = in_parallel(Worker(), modes)
    VARIABLE.reset(token)

    assert without_grad == [[False, False, True, torch.float16, "here"]]
    assert in_inference == [[False, True, False, torch.bfloat16, "here"]]
    assert in_parallel(Worker(), modes) == [[True, False, False, torch.bfloat16, "unset"]]


def test_the_first_error_comes_out_when_all_have_ended_with_the_others_as_notes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, submit = Queue[Future[Any]](), ThreadPoolExecutor.submit

    def noted(pool: ThreadPoolExecutor, *call: Any) -> Future[Any]:
        future: Future[Any] = submit(pool, *call)
        begun.put(future)
        return future

    def fails_last(branch: Worker) -> None:
        _, other = begun.get(), begun.get()
        other.result(timeout=60)  # only after the other has failed
        raise KeyError("last")

    def fails_first(branch: Worker) -> None:
        raise ValueError("first")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", noted)
    with pytest.raises(ValueError, match="first") as caught:
        in_parallel(Worker(), fails_last, fails_first)

    assert "KeyError: 'last'" in caught.value.__notes__[0]
    assert len(caught.value.__notes__) == 1


# ---- bad input -------------------------------------------------------------------------------------------------------


def test_no_work_and_a_result_in_place_of_a_work_are_refused() -> None:
    with pytest.raises(InputError) as none:
        in_parallel(Worker())
    with pytest.raises(InputError) as called:
        in_parallel(Worker(), Worker().work())  # type: ignore[arg-type]

    assert str(none.value) == (
        "in_parallel was given no work\n  in_parallel(self, first, second): each is called with a branch"
    )
    assert str(called.value) == (
        "a work must be a function of a branch, but is a tuple\n"
        "  give `lambda branch: branch.method()` in place of its result"
    )


def test_a_work_that_leaves_a_stage_open_is_refused() -> None:
    with pytest.raises(StageError) as caught:
        in_parallel(Worker(), lambda branch: branch.staged("left").__enter__())

    assert str(caught.value) == (
        "a work of in_parallel has left stage left open\n  open stages  left\n  open it in a `with` block"
    )


def test_a_work_that_opens_a_stage_of_the_original_is_refused_by_the_core() -> None:
    worker = Worker()
    with worker.staged("around"), pytest.raises(StageError) as caught:
        in_parallel(worker, lambda branch: worker.work())

    assert str(caught.value) == (
        "stages were touched by another thread than the one that opened them\n"
        "  use one Extensible for each thread, or hand the values over as arguments"
    )
