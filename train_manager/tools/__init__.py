"""Tools that examine a training from outside: its layers, its learning rate, its faults, and its resumption.

This is the door of all tools, wherever they lie:

    >>> from train_manager.tools import lr_finder, read_run

Its files in reading order; each imports only those above it:

    summary            a table of a model's layers
    extras             optional packages, without what they print
    factorize          layers of low rank
    quantize           Linear layers with weights of 8 bits
    export_onnx        models as ONNX files, and these files called
    preserve           leave a training as it was found
    lr_finder          the learning rate range test
    trial_steps        steps of a training that are put back, and their fixtures
    diagnosing         faults of a training, found before it trains
    few_batches        the first two batches and the last
    held_graphs        tensors that somebody keeps with their graphs
    scratch            a folder for a run that is only tried, and the bytes that it writes
    raised             an error as a finding
    rehearsing         all of a long training in a short one
    comparing          the values in which two states differ
    driven             a training that is watched, and killed after a given step
    processes          each driven training in a process of its own
    killed_runs        the runs of one training: to the end, killed, resumed
    resume_report      whether these runs end in the same state, and the causes of differences
    verify_resume      a training that is killed and resumed, compared with one that is not
"""

from train_manager.diagnosis import check_batch_leak, check_loss_leak, check_parameters
from train_manager.runs.comparing.compare_runs import compare_runs
from train_manager.runs.record.read_run import read_run
from train_manager.runs.repeating.reproduce import reproduce
from train_manager.runs.showing.page import write_report
from train_manager.tools.diagnosing import diagnose
from train_manager.tools.export_onnx import OnnxModel, export_onnx
from train_manager.tools.factorize import factorize, load_factorized
from train_manager.tools.lr_finder import lr_finder
from train_manager.tools.quantize import quantize
from train_manager.tools.rehearsing import rehearse
from train_manager.tools.summary import summary
from train_manager.tools.verify_resume import verify_resume

__all__ = [
    "OnnxModel",
    "check_batch_leak",
    "check_loss_leak",
    "check_parameters",
    "compare_runs",
    "diagnose",
    "export_onnx",
    "factorize",
    "load_factorized",
    "lr_finder",
    "quantize",
    "read_run",
    "rehearse",
    "reproduce",
    "summary",
    "verify_resume",
    "write_report",
]
