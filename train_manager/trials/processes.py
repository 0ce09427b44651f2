"""Driven trainings, each in a process of its own, from a script or a function; their output goes to a file."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from train_manager.manager import TrainManager
from train_manager.telling.errors import InputError
from train_manager.trials.driven import Driver, Plan

Run = Callable[[Plan, Path], int]
"""Runs a training as a plan says, with its output in a file, and returns the exit code; -9 if it was killed."""


def runs_of_script(script: Path, arguments: Sequence[str]) -> Run:
    """Return a function that runs a script in a new interpreter, as from a shell."""

    def run(plan: Plan, log: Path) -> int:
        plan_file = Path(plan.notes, "plan.json")
        plan_file.write_text(json.dumps(asdict(plan)))
        # Not `python -m`: the package imports the module, which would then be there twice.
        program = "from train_manager.trials.driven import main; main()"
        command = [sys.executable, "-c", program, str(plan_file), str(script), *arguments]
        with log.open("wb") as output:
            return subprocess.run(
                command,
                # A kill flushes no buffer, but the lines before it must be in the file.
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
            ).returncode

    return run


def runs_of_function(make: Callable[[], TrainManager], train: Callable[[TrainManager], object]) -> Run:
    """Return a function that runs a training in a fork of this process, which takes milliseconds.

    Raises:
        InputError: this process uses a GPU; CUDA does not work in a fork of such a process.
    """
    if torch.cuda.is_initialized():
        raise InputError(
            "verify_resume() forks this process, which uses a GPU already; a fork of it could not",
            name="make",
            cure="run `train-manager verify-resume SCRIPT`, or call verify_resume before CUDA is used",
        )

    # Imported here once: otherwise the first optimizer of each fork takes a second to import it.
    importlib.import_module("torch._dynamo")

    def body(plan: Plan, log: Path) -> None:
        _send_output_to(log)
        warnings.resetwarnings()  # this process, such as a test, may turn warnings into errors
        torch.set_num_threads(1)  # a fork has none of the parent's threads, and would wait for them for ever
        driver = Driver(plan)
        driver.install()
        train(make())
        driver.finish()

    def run(plan: Plan, log: Path) -> int:
        process: Any = multiprocessing.get_context("fork").Process(target=body, args=(plan, log))
        with warnings.catch_warnings():
            # Python warns of a fork beside threads; `body` uses none of the threads of this process.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        process.join()
        return int(process.exitcode)

    return run


def _send_output_to(log: Path) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    # The descriptors too: code in C and child processes print past sys.stdout.
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115  # until the process ends
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
