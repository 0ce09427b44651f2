"""What is asked around a training: a summary of its model, a smaller model, a file; a stage again, and two at once.

This is the door of all tools, wherever they lie:

    >>> from train_manager.tools import lr_finder, read_run

Its files in reading order; each imports only those above it:

    summary            a table of a model's layers
    export             a trained model in another form: of low rank, with int8 weights, as an ONNX file
    moment             the state at one point of a stage, which can be put back
    in_parallel        stages in parallel, each on a branch of one Extensible
"""

from train_manager.checks import check_batch_leak, check_loss_leak, check_parameters
from train_manager.runs.comparing.compare_runs import compare_runs
from train_manager.runs.record.read_run import read_run
from train_manager.runs.repeating.reproduce import reproduce
from train_manager.runs.showing.page import write_report
from train_manager.tools.export import OnnxModel, export_onnx, factorize, load_factorized, quantize
from train_manager.tools.in_parallel import in_parallel
from train_manager.tools.moment import Moment
from train_manager.tools.summary import summary
from train_manager.trials.diagnose import diagnose
from train_manager.trials.lr_finder import lr_finder
from train_manager.trials.rehearse import rehearse
from train_manager.trials.tune import tune
from train_manager.trials.verify_resume import verify_resume

__all__ = [
    "Moment",
    "OnnxModel",
    "check_batch_leak",
    "check_loss_leak",
    "check_parameters",
    "compare_runs",
    "diagnose",
    "export_onnx",
    "factorize",
    "in_parallel",
    "load_factorized",
    "lr_finder",
    "quantize",
    "read_run",
    "rehearse",
    "reproduce",
    "summary",
    "tune",
    "verify_resume",
    "write_report",
]
