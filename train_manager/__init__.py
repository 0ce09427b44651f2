"""Train Manager: training code whose plots, logs and checks stay outside of it.

The core (stages, fixtures, hooks, extensions) is imported at once and needs the standard library only. Names that need
torch are imported when they are first used. The folders and files; each imports only those above it:

    telling       words for people: errors, names meant, lines of source
    core          stages, fixtures and hooks
    checker       mistakes in hooks, found by reading source
    validation    checks of numbers and words that a caller passes
    files         files that survive a crash and a second writer
    words         the names that other tools use for arguments, methods and fixtures
    rebuilding    the arguments of objects, and how objects are rebuilt from them
    schedules     when a hook runs
    model         modules and parameters of a model, and the optimizers that train them
    data          where the batches come from
    metrics       how numbers are measured and kept
    checkpoints   the content of checkpoints, and which of them stay
    reporting     how numbers are shown while a run is open
    signals       signals that end a run
    loop          the loop: the classes that TrainManager is made of, and its state
    distribution  processes that train together
    runs          records of runs, and how runs are compared and repeated
    stages        the table of the loop: its stages, their fixtures, and what each method opens
    manager       TrainManager: its constructor and its public methods
    diagnosis     checks that find mistakes in a model or its training
    testing       a toy problem for tests of your own
    extensions    everything that is not the algorithm
    tools         functions to be called before or after a training
    learner       a learner from files
    jumpml        the learner under the names of the article that it comes from
    demo          the program that `make demo` runs
    commands      the commands of `train-manager`
    cli           the command line `train-manager`
    __main__      the same as `python -m train_manager`
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from train_manager._version import __version__
from train_manager.core.declarations import always, fixture, modifies, not_a_hook, priority, provides
from train_manager.core.extensible import Extensible, staged
from train_manager.core.extension import Extension
from train_manager.core.fixtures import Fixtures
from train_manager.core.outcome import Skip, SkipStage
from train_manager.rebuilding.recorded import recorded
from train_manager.schedules import at_most, every, exponentially, once, periodically, scheduled, when
from train_manager.telling.errors import (
    CheckError,
    ExtensionNotFound,
    FixtureExists,
    FixtureNotFound,
    HookError,
    NoStageOpen,
    OrderError,
    RankError,
    StageError,
    TrainManagerError,
)

if TYPE_CHECKING:
    from train_manager.data.in_memory import InMemory
    from train_manager.data.interleaved import Interleaved
    from train_manager.data.named_sets import Endless
    from train_manager.data.rows import Rows
    from train_manager.data.seeded_dataset import SeededDataset, SeededSampler
    from train_manager.data.seeded_loader import SeededDataLoader
    from train_manager.data.together import Together
    from train_manager.loop.books import Book
    from train_manager.loop.losses import WeightedLosses, add_loss, report_loss
    from train_manager.loop.objectives import Objective
    from train_manager.loop.skip import SkipBatch
    from train_manager.manager import TrainManager
    from train_manager.reporting.results import TrainResult
    from train_manager.runs.comparing.compare_runs import compare_runs
    from train_manager.runs.record.read_run import read_run
    from train_manager.runs.repeating.reproduce import reproduce
    from train_manager.runs.showing.page import write_report
    from train_manager.telling.errors import ArgumentError, CheckpointError, InputError, NonFiniteLoss
    from train_manager.tools.diagnosing import diagnose
    from train_manager.tools.lr_finder import lr_finder
    from train_manager.tools.rehearsing import rehearse
    from train_manager.tools.summary import summary
    from train_manager.tools.verify_resume import verify_resume
else:
    # name -> the module that has it: `import train_manager` alone does not load torch.
    _LAZY = {
        "ArgumentError": "train_manager.telling.errors",
        "CheckpointError": "train_manager.telling.errors",
        "Endless": "train_manager.data.named_sets",
        "InMemory": "train_manager.data.in_memory",
        "InputError": "train_manager.telling.errors",
        "Interleaved": "train_manager.data.interleaved",
        "NonFiniteLoss": "train_manager.telling.errors",
        "Rows": "train_manager.data.rows",
        "SeededDataLoader": "train_manager.data.seeded_loader",
        "SeededDataset": "train_manager.data.seeded_dataset",
        "SeededSampler": "train_manager.data.seeded_dataset",
        "Together": "train_manager.data.together",
        "SkipBatch": "train_manager.loop.skip",
        "TrainManager": "train_manager.manager",
        "Book": "train_manager.loop.books",
        "Objective": "train_manager.loop.objectives",
        "WeightedLosses": "train_manager.loop.losses",
        "add_loss": "train_manager.loop.losses",
        "report_loss": "train_manager.loop.losses",
        "TrainResult": "train_manager.reporting.results",
        "compare_runs": "train_manager.runs.comparing.compare_runs",
        "diagnose": "train_manager.tools.diagnosing",
        "lr_finder": "train_manager.tools.lr_finder",
        "rehearse": "train_manager.tools.rehearsing",
        "read_run": "train_manager.runs.record.read_run",
        "reproduce": "train_manager.runs.repeating.reproduce",
        "summary": "train_manager.tools.summary",
        "verify_resume": "train_manager.tools.verify_resume",
        "write_report": "train_manager.runs.showing.page",
    }

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_LAZY[name]), name)

    # The public modules. Python sets each as an attribute of the package once it is imported; `dir` lists it then.
    _MODULES = {"extensions", "metrics", "testing"}

    def __dir__() -> list[str]:
        return sorted({*__all__, *_MODULES.intersection(globals())})


__all__ = [
    "ArgumentError",
    "Book",
    "CheckError",
    "CheckpointError",
    "Endless",
    "Extensible",
    "Extension",
    "ExtensionNotFound",
    "FixtureExists",
    "FixtureNotFound",
    "Fixtures",
    "HookError",
    "InMemory",
    "InputError",
    "Interleaved",
    "NoStageOpen",
    "NonFiniteLoss",
    "Objective",
    "OrderError",
    "RankError",
    "Rows",
    "SeededDataLoader",
    "SeededDataset",
    "SeededSampler",
    "Skip",
    "SkipBatch",
    "SkipStage",
    "StageError",
    "Together",
    "TrainManager",
    "TrainManagerError",
    "TrainResult",
    "WeightedLosses",
    "__version__",
    "add_loss",
    "always",
    "at_most",
    "compare_runs",
    "diagnose",
    "every",
    "exponentially",
    "fixture",
    "lr_finder",
    "modifies",
    "not_a_hook",
    "once",
    "periodically",
    "priority",
    "provides",
    "read_run",
    "recorded",
    "rehearse",
    "report_loss",
    "reproduce",
    "scheduled",
    "staged",
    "summary",
    "verify_resume",
    "when",
    "write_report",
]
