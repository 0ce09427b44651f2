"""The share of the interpreter that TensorBoard takes while it follows a run.

    python -m benchmarks sinks

It is read from the clock of the thread that sends, so nothing is compared with a second training. It is left out where
tensorboard is not installed.
"""

from __future__ import annotations

import importlib.util
import threading
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from time import clock_gettime, perf_counter, pthread_getcpuclockid
from typing import Any, Final

import torch
from torch.nn import functional as F

from benchmarks.measure import spread
from benchmarks.mlp import new_batches, new_model, sgd
from benchmarks.section import Claim, Section
from train_manager import TrainManager
from train_manager.extensions import MetricStore, TensorBoard
from train_manager.runs.sending import follower
from train_manager.runs.sending.sink_state import SINKS_FILE

QUICK: dict[str, Any] = {"rounds": 1, "seconds": 5.0}
BATCHES: Final = 200

TEXT: Final = """\
CPU time of the thread that sends to TensorBoard, while an MLP is trained on batches of 32 for {seconds:.0f} s, which
brings more metrics than it may send: {share} of a second, once tensorboard is imported. It rests to stay at
{limit:.0%} whatever there is to send; what is left then is sent as the run ends, which is not in it.
"""


def section(rounds: int = 5, seconds: float = 30.0) -> Section:
    """Measure."""
    if importlib.util.find_spec("tensorboard") is None:
        return Section("Sinks", "Left out: tensorboard is not installed (`make sinks`).", on_page=False)
    torch.set_num_threads(1)
    share = spread([share_of_thread(seconds) for _ in range(rounds)])
    text = TEXT.format(seconds=seconds, share=share.shown(3), limit=follower.SHARE)
    claim = Claim("share of the interpreter that TensorBoard takes", share.median, must=0.04, goal=0.025, unit="")
    return Section("Sinks", text, [claim], on_page=False)


def share_of_thread(seconds: float) -> float:
    """Return the CPU seconds of the thread that sends for each second of a run."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is more than is sent in the ten seconds at the end
        tm = TrainManager(
            model=new_model(),
            loss=F.cross_entropy,
            optimizer=sgd,
            train_data=new_batches(BATCHES),
            extensions=[MetricStore(), TensorBoard()],
            train_dir=folder,
        )
        with tm.run():
            while not Path(folder, SINKS_FILE).exists():  # so long tensorboard is imported
                tm.train_steps(BATCHES)
            began, before = perf_counter(), seconds_of_thread()
            while perf_counter() - began < seconds:
                tm.train_steps(BATCHES)
            return (seconds_of_thread() - before) / (perf_counter() - began)


def seconds_of_thread() -> float:
    """Return the CPU seconds of the thread that sends."""
    [found] = [thread for thread in threading.enumerate() if thread.name == f"train-manager-{TensorBoard.sink}"]
    assert found.ident is not None
    return clock_gettime(pthread_getcpuclockid(found.ident))
