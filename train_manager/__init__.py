"""Train Manager: training code whose plots, logs and checks stay outside of it.

The core (stages, fixtures, hooks, extensions) is imported at once and needs the standard library only. Names that need
torch are imported when they are first used. The folders and files; each imports only those above it:

    telling       words for people: errors, names meant, lines of source
    errors        the errors, under the name by which programs import them
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
    checks        what is wrong with a model, a loss or a batch: checks that are functions
    testing       a toy problem for tests of your own
    extensions    everything that is not the algorithm
    trials        trainings that are tried and put back: lr_finder, diagnose, rehearse, tune, verify_resume
    tools         the door of all tools; a summary, exports, a stage again or two at once
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
from train_manager.core.calls import with_parameters
from train_manager.core.declarations import always, fixture, modifies, not_a_hook, priority, provides
from train_manager.core.extensible import Extensible, staged
from train_manager.core.extension import Extension
from train_manager.core.fixtures import Fixtures
from train_manager.core.outcome import SkipStage
from train_manager.core.schedule import Schedule
from train_manager.core.watcher import Watcher
from train_manager.errors import InputError, NonFiniteLoss, TrainManagerError
from train_manager.rebuilding.recorded import recorded
from train_manager.schedules import at_most, every, exponentially, once, periodically, scheduled, when

# Type checkers read the first branch, Python the second: `import train_manager` alone does not load torch.
if TYPE_CHECKING:
    from train_manager.data.in_memory import InMemory
    from train_manager.data.interleaved import Interleaved
    from train_manager.data.named_sets import Endless
    from train_manager.data.rows import Rows
    from train_manager.data.seeded_loader import SeededDataLoader
    from train_manager.data.together import Together
    from train_manager.loop.books import Book
    from train_manager.loop.groups import groups
    from train_manager.loop.losses import WeightedLosses, add_loss, report_loss
    from train_manager.loop.objectives import Objective
    from train_manager.loop.skip import SkipBatch
    from train_manager.manager import TrainManager
    from train_manager.reporting.results import TrainResult
    from train_manager.tools.summary import summary
    from train_manager.trials.diagnose import diagnose
    from train_manager.trials.lr_finder import lr_finder
    from train_manager.trials.rehearse import rehearse
    from train_manager.trials.tune import tune
else:
    _LAZY = {
        "data.in_memory": "InMemory",
        "data.interleaved": "Interleaved",
        "data.named_sets": "Endless",
        "data.rows": "Rows",
        "data.seeded_loader": "SeededDataLoader",
        "data.together": "Together",
        "loop.books": "Book",
        "loop.groups": "groups",
        "loop.losses": "WeightedLosses add_loss report_loss",
        "loop.objectives": "Objective",
        "loop.skip": "SkipBatch",
        "manager": "TrainManager",
        "reporting.results": "TrainResult",
        "trials.diagnose": "diagnose",
        "trials.lr_finder": "lr_finder",
        "trials.rehearse": "rehearse",
        "trials.tune": "tune",
        "tools.summary": "summary",
    }

    def __getattr__(name: str) -> Any:
        for module, names in _LAZY.items():
            if name in names.split():
                return getattr(importlib.import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    # The public modules. Python sets each as an attribute of the package once it is imported; `dir` lists it then.
    _MODULES = {"errors", "extensions", "metrics", "testing", "tools"}

    def __dir__() -> list[str]:
        return sorted({*__all__, *_MODULES.intersection(globals())})


__all__ = [
    "Book",
    "Endless",
    "Extensible",
    "Extension",
    "Fixtures",
    "InMemory",
    "InputError",
    "Interleaved",
    "NonFiniteLoss",
    "Objective",
    "Rows",
    "Schedule",
    "SeededDataLoader",
    "SkipBatch",
    "SkipStage",
    "Together",
    "TrainManager",
    "TrainManagerError",
    "TrainResult",
    "Watcher",
    "WeightedLosses",
    "__version__",
    "add_loss",
    "always",
    "at_most",
    "diagnose",
    "every",
    "exponentially",
    "fixture",
    "groups",
    "lr_finder",
    "modifies",
    "not_a_hook",
    "once",
    "periodically",
    "priority",
    "provides",
    "recorded",
    "rehearse",
    "report_loss",
    "scheduled",
    "staged",
    "summary",
    "tune",
    "when",
    "with_parameters",
]
