"""The table of the loop: every stage with its fixtures, and what each public method of a TrainManager opens.

It is what the checker and ``explain`` know of the loop, and what the pages of the reference are made of. ``print(MAP)``
shows all of it: the stages in the order in which they open, with the fixtures that they own. The loop itself is written
out in ``loop/training.py``, ``batch.py``, ``evaluation.py`` and ``run.py``; a test calls every public method and
compares the stages and fixtures of each with the table.

``FIXTURES`` says of each fixture how it is annotated and what it means. ``TOO_LATE`` says from which point on a hook
may not modify a fixture, because the loop has used it by then.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from train_manager.checker.table import Again, Block, Body, If, Inside, Line, MethodCall, Reads, Table, TableStage
from train_manager.checker.too_late import TooLate

# ---- the stages, from the inside out -----------------------------------------------------------------------------

TRAIN_BATCH: Final = "train_step_batch"
EVAL_BATCH: Final = "eval_step_batch"
COUNTS: Final = ("epoch_num", "step_num", "update_num", "samples_seen")

TRAIN_FORWARD: Final = (
    TableStage(
        "train_model_forward",
        body=(
            Line("prediction = train_model_forward(...)", ("prediction",), TRAIN_BATCH, method="train_model_forward"),
        ),
        reads=("losses",),
        changes=("prediction",),
    ),
    TableStage(
        "train_loss_forward",
        body=(Line("loss = train_loss_forward(...)", ("loss",), TRAIN_BATCH, method="train_loss_forward"),),
        reads=("losses",),
        changes=("loss",),
    ),
)
EVAL_FORWARD: Final = (
    TableStage(
        "eval_model_forward",
        body=(Line("prediction = eval_model_forward(...)", ("prediction",), EVAL_BATCH, method="eval_model_forward"),),
        reads=("losses",),
        changes=("prediction",),
    ),
    TableStage(
        "eval_loss_forward",
        body=(Line("loss = eval_loss_forward(...)", ("loss",), EVAL_BATCH, method="eval_loss_forward"),),
        reads=("losses",),
        changes=("loss",),
    ),
)
BACKWARD: Final = TableStage(
    "train_backward",
    ("backward_loss", "optimizer", "optimizer_name"),
    (Line("backward_loss.backward()"),),
    reads=("backward_loss",),
)
STEP: Final = Block(
    "if update_ends:",
    (
        TableStage(
            "train_optimizer_step",
            ("optimizer", "optimizer_name"),
            (Line("optimizer.step(), then its gradients are freed"), Line("update_num += 1")),
            reads=("autocast",),
            changes=("update_num",),
        ),
    ),
)
TRAIN_STEP_BATCH: Final = TableStage(
    TRAIN_BATCH,
    ("batch", "batch_num", "datasource_name", "update_begins", "update_ends", "losses"),
    (
        Line("inputs, targets = unpack_batch(...)", ("inputs", "targets"), TRAIN_BATCH, method="unpack_batch"),
        Line(
            "true_batch_size = train_get_true_batch_size(...)",
            ("true_batch_size",),
            TRAIN_BATCH,
            method="train_get_true_batch_size",
        ),
        Line("global_batch_size = true_batch_size", ("global_batch_size",), TRAIN_BATCH),
        Line("if nothing looks into the four stages below: the same without opening them; else"),
        MethodCall("train_batch", "", by_name=True),
        Line("loss = that of the updates, if forward() was not called", ("loss",), TRAIN_BATCH),
        Line("step_num += 1"),
    ),
    lazy=("last_batch", "example_index", "data_seconds", "loss_parts"),
    reads=("batch", "batch_losses", "loss", "losses", "prediction", "update_begins", "update_ends"),
    changes=("global_batch_size", "samples_seen", "step_num", "true_batch_size"),
)
SAVE_CHECKPOINT: Final = TableStage(
    "save_checkpoint",
    ("checkpoint_saved",),
    (Line("a hook may save a checkpoint, and then modifies checkpoint_saved"),),
)
EVAL_STEP_BATCH: Final = TableStage(
    EVAL_BATCH,
    ("batch", "losses"),
    (
        Line("inputs, targets = unpack_batch(...)", ("inputs", "targets"), EVAL_BATCH, method="unpack_batch"),
        Line(
            "true_batch_size = eval_get_true_batch_size(...)",
            ("true_batch_size",),
            EVAL_BATCH,
            method="eval_get_true_batch_size",
        ),
        MethodCall("eval_batch", "eval_batch(...), by default forward(), which here is:", by_name=True),
        Line("loss = model.eval_step(batch), if the model trains itself", ("loss",), EVAL_BATCH),
    ),
    reads=("batch", "loss", "losses", "true_batch_size"),
    changes=("true_batch_size",),
)
EVAL: Final = TableStage(
    "eval",
    body=(
        Block(
            "for name, data in eval_data:",
            (
                TableStage(
                    "eval_step_epoch",
                    ("datasource_name",),
                    (
                        Block("for batch in data:", (EVAL_STEP_BATCH,)),
                        Line('eval_result = {"loss": mean over examples}', ("eval_result",), "eval_step_epoch"),
                    ),
                ),
            ),
        ),
        Line("eval_results = {name: eval_result}", ("eval_results",), "eval"),
    ),
)
EPOCH_ENDS: Final = (
    Line("lr_schedule.step()"),
    Line("epoch_num += 1"),
    Line('train_result = {"loss": mean over examples}', ("train_result",), "train_step_epoch"),
)
TRAIN: Final = TableStage(
    "train",
    body=(
        Again("if eval_at says so, before the first epoch", EVAL),
        Block(
            "for each epoch:",
            (
                TableStage(
                    "train_step_epoch",
                    ("batches_done",),
                    (
                        Block(
                            "until the data ends, or a hook has ended the epoch (end_epoch, stop):",
                            (
                                Again("if a hook has requested it (eval_soon)", EVAL),
                                Block(
                                    "if a hook has requested it (save_soon), or at the end of the call:",
                                    (SAVE_CHECKPOINT,),
                                ),
                                TRAIN_STEP_BATCH,
                            ),
                        ),
                        *EPOCH_ENDS,
                    ),
                    reads=("phase_name", "standalone_eval"),
                    changes=("end_step", "epoch_num"),
                ),
                Again("if eval_at says so, after the epoch", EVAL),
                Again("if a hook has requested it", SAVE_CHECKPOINT),
            ),
        ),
        Again("if eval_at says so, after the last epoch", EVAL),
    ),
    reads=("phase_name", "standalone_eval"),
    changes=("end_step",),
)
OWN_EPOCH: Final = TableStage(
    "train_step_epoch", ("batches_done",), EPOCH_ENDS, reads=("phase_name",), changes=("epoch_num",)
)
OWN_LOOP: Final = (
    Again("if a loop of yours calls train_on_batch", TRAIN_STEP_BATCH),
    Block("if it calls end_epoch after such batches, or a hook of theirs does:", (OWN_EPOCH,)),
    Again("if its hooks have requested it", SAVE_CHECKPOINT),
)
PREDICT: Final = TableStage(
    "predict",
    body=(
        Block(
            "for batch in data:",
            (
                TableStage(
                    "predict_step_batch",
                    ("batch",),
                    (
                        Line("inputs = unpack_batch(...)", ("inputs",), "predict_step_batch", method="unpack_batch"),
                        Line(
                            "prediction = eval_model_forward(...)",
                            ("prediction",),
                            "predict_step_batch",
                            method="eval_model_forward",
                        ),
                    ),
                    reads=("batch",),
                ),
            ),
        ),
        Line("predictions = all of them, joined", ("predictions",), "predict"),
    ),
)
PHASE: Final = TableStage(
    "phase", body=(Inside("what is called inside `with tm.phase(...)`: train, eval, predict"),), changes=COUNTS
)


_OF_A_RUN: Final = (
    *("model", "phase_name", *COUNTS, "start_step", "end_step"),
    *("standalone_eval", "batch_losses", "train_dir", "device"),
)


def _run(*body: Body) -> TableStage:
    """Return the stage of a run with what is done in it."""
    load = TableStage(
        "load_checkpoint",
        ("checkpoint_loaded",),
        (Line("a hook may load a checkpoint, and then modifies checkpoint_loaded"),),
        changes=COUNTS,
    )
    return TableStage(
        "run",
        _OF_A_RUN,
        (Line("", method="initialize_params"), load, *(entry for part in body for entry in part)),
        reads=("batch_losses", "phase_name", "standalone_eval"),
        changes=(*COUNTS, "model", "phase_name", "start_step", "end_step"),
    )


def _in_run(*body: Body) -> Body:
    """Return what is done in the run that is open, or in a run of its own."""
    inside = tuple(entry for part in body for entry in part)
    return If("run", inside), If("run", (_run(inside),), is_open=False)


# ---- the methods -------------------------------------------------------------------------------------------------

_TRAINING: Final = _in_run((TRAIN,))
_OWN_EPOCH: Final = If(
    TRAIN_BATCH, (If("train_step_epoch", (OWN_EPOCH, SAVE_CHECKPOINT), is_open=False),), is_open=False
)
_BACKWARD: Final = If(TRAIN_BATCH, (BACKWARD,))
_STEP: Final = If(TRAIN_BATCH, (STEP,))

TABLE: Final = Table(
    {
        "train": _TRAINING,
        "train_epochs": _TRAINING,
        "train_steps": _TRAINING,
        "train_epoch": _TRAINING,
        "train_on_batch": _in_run(OWN_LOOP),
        "end_epoch": _in_run((_OWN_EPOCH,)),
        "eval": _in_run((EVAL,)),
        "eval_on_batch": _in_run((EVAL,)),
        "predict": _in_run((PREDICT,)),
        "run": _in_run((Inside(),)),
        "open": (_run((Inside(),)),),
        "phase": _in_run((PHASE,)),
        # To be called in a batch.
        "forward": (If(TRAIN_BATCH, TRAIN_FORWARD), If(EVAL_BATCH, EVAL_FORWARD)),
        "update": (_BACKWARD, _STEP),
        "backward": (_BACKWARD,),
        "step": (_STEP,),
        # To be overridden.
        "initialize_params": (),
        "unpack_batch": (),
        "get_true_batch_size": (Reads(("inputs", "targets")),),
        "train_get_true_batch_size": (MethodCall("get_true_batch_size", "", by_name=True),),
        "eval_get_true_batch_size": (MethodCall("get_true_batch_size", "", by_name=True),),
        "train_batch": (
            MethodCall("forward", "train_batch(...), by default update(forward()), where forward() is:"),
            MethodCall("update", "and update(loss) is, as often as it is called:"),
        ),
        "eval_batch": (MethodCall("forward", ""),),
        "model_forward": (),
        "train_model_forward": (MethodCall("model_forward", "", by_name=True),),
        "eval_model_forward": (MethodCall("model_forward", "", by_name=True),),
        "loss_forward": (Reads(("batch", "prediction", "targets")),),
        "train_loss_forward": (MethodCall("loss_forward", "", by_name=True),),
        "eval_loss_forward": (MethodCall("loss_forward", "", by_name=True),),
    }
)
"""What each method of a TrainManager opens. A method that is not in it opens no stage and defines no fixture."""

RUN: Final = _run((TRAIN,), OWN_LOOP, (EVAL, PREDICT, PHASE))
"""All that may happen in a run."""

MAP: Final = f"\n{TABLE.draw((RUN,))}\n"
"""The stages and steps of a run, as text."""

# ---- the fixtures ------------------------------------------------------------------------------------------------


class Fixture(NamedTuple):
    """How a fixture is annotated, and what it means."""

    annotation: str
    meaning: str


FIXTURES: Final = {
    # Of run.
    "model": Fixture("Module", "the model that the loop calls, compiled or wrapped if so set"),
    "phase_name": Fixture("str | None", "the name of the phase; None outside of `tm.phase(...)`"),
    "epoch_num": Fixture("int", "epochs completed; at `post_train_step_epoch` with the present one"),
    "step_num": Fixture("int", "batches trained on; at `post_train_step_batch` with the present one"),
    "update_num": Fixture(
        "int", "optimizer steps done, of all optimizers; at `post_train_optimizer_step` with the present one"
    ),
    "samples_seen": Fixture("int", "examples trained on; a tensor if the batch sizes are tensors"),
    "start_step": Fixture("int", "`step_num` as the training call began"),
    "end_step": Fixture("int | None", "the `step_num` at the end of the training call; None while unknown"),
    "standalone_eval": Fixture("bool", "whether the run is a call of `tm.eval()`, and not a training"),
    "batch_losses": Fixture("BatchLosses", "hands the losses of all batches to its readers"),
    "train_dir": Fixture("Path", "the folder for the files of extensions; only if the manager has one"),
    "device": Fixture("device", "the device of the batches; only if the manager has one"),
    "writer": Fixture("MetricWriter", "writes metrics of your own; only with the extension `MetricStore`"),
    # Of load_checkpoint.
    "checkpoint_loaded": Fixture("Path | bool", "the checkpoint that a hook has loaded; False if there is none"),
    # Of save_checkpoint.
    "checkpoint_saved": Fixture("Path | bool", "the checkpoint that a hook has saved; False if none has"),
    # Of train_step_epoch.
    "batches_done": Fixture("int", "batches of this epoch given before it opens: 0 unless it continues"),
    # Of a batch.
    "batch": Fixture("Any", "the batch of the data, on the device"),
    "batch_num": Fixture("int", "the number of the batch in its epoch, from 1"),
    "datasource_name": Fixture("str", "the name of the data set"),
    "update_begins": Fixture("bool", "whether this batch is the first of the optimizer's step"),
    "update_ends": Fixture("bool", "whether the optimizer steps after this batch"),
    "losses": Fixture("Losses", "the loss terms by name, with their graphs: detach what outlives the batch"),
    "loss_parts": Fixture("dict[str, Tensor]", "the same as they are in the loss, with their weights"),
    "last_batch": Fixture("bool", "whether the batch is the last of its epoch; looks one batch ahead"),
    "data_seconds": Fixture("float", "the seconds of waiting for the batch; measured only if a hook asks"),
    "example_index": Fixture("Any", "the index of each example, if the data has one"),
    "inputs": Fixture("Tensor", "the inputs of the model"),
    "targets": Fixture("Tensor", "the targets of the loss"),
    "true_batch_size": Fixture("int", "the number of examples in the batch"),
    "global_batch_size": Fixture("int", "the number of examples, summed over all processes"),
    "prediction": Fixture("Tensor", "the output of the model"),
    "loss": Fixture("Tensor", "the loss of the batch, a scalar on its device"),
    "backward_loss": Fixture("Tensor", "the loss whose `backward()` is called"),
    "optimizer": Fixture("Optimizer", "the optimizer that gets gradients, or steps"),
    "optimizer_name": Fixture("str", "the name of the optimizer; a single one is called 'optimizer'"),
    # Of train_step_epoch, eval and predict.
    "train_result": Fixture("EvalResult", "the means of the metrics over the epoch"),
    "eval_result": Fixture("EvalResult", "the metrics of one evaluation set"),
    "eval_results": Fixture("dict[str, EvalResult]", "the metrics of all sets, by name"),
    "predictions": Fixture("Tensor", "all predictions, joined; a list if they cannot be joined"),
    # Always there.
    "fixtures": Fixture("Fixtures", "a mapping of all live fixtures"),
    "stage": Fixture("Stage", "the stage: its name, path and depth"),
    "train_manager": Fixture("TrainManager", "the manager"),
    "extensible": Fixture("Extensible", "the object that opens the stages: the manager"),
    # In post hooks that are marked with @always; None if the stage has not failed.
    "exc_type": Fixture("type[BaseException] | None", "the class of the error that ended the stage"),
    "exc_value": Fixture("BaseException | None", "the error that ended the stage"),
    "traceback": Fixture("TracebackType | None", "the traceback of the error"),
}
"""Every fixture of the loop."""

# ---- where a change comes too late --------------------------------------------------------------------------------


def _hooks(*stages: str) -> frozenset[str]:
    """Return the names of the pre and post hooks of stages."""
    return frozenset(f"{kind}_{stage}" for stage in stages for kind in ("pre", "post"))


_FROM_BACKWARD = _hooks("train_backward", "train_optimizer_step") | {"post_train_step_batch"}
_FROM_FORWARD = _hooks("train_model_forward", "train_loss_forward", "eval_model_forward", "eval_loss_forward")
_COUNT = "set it as an attribute of the train_manager, in a hook of load_checkpoint"

# Each entry: the fixtures, why a change would have no effect, the cure, and the hooks that may not modify them (all
# hooks, if none are named).
TOO_LATE: Final = (
    TooLate(
        ("loss",),
        "backward_loss was made of it before train_backward",
        "modify it at post_train_loss_forward, or modify backward_loss at pre_train_backward",
        _FROM_BACKWARD,
    ),
    TooLate(
        ("loss",),
        "the mean of the evaluation has taken it",
        "modify it at post_eval_loss_forward, or modify eval_result at post_eval_step_epoch",
        frozenset({"post_eval_step_batch"}),
    ),
    TooLate(
        ("inputs", "targets", "prediction"),
        "the loss was made of it in train_loss_forward",
        "modify it at pre_train_loss_forward or before",
        _FROM_BACKWARD | {"post_train_loss_forward"},
    ),
    TooLate(
        ("batch",),
        "inputs and targets were unpacked from it after the pre hooks of the batch",
        "modify it in a pre hook of the batch, as pre_train_step_batch; or modify inputs and targets",
        _FROM_BACKWARD | _FROM_FORWARD | {"post_eval_step_batch", "post_predict_step_batch"},
    ),
    TooLate(
        ("backward_loss",),
        "the gradients were computed of it in train_backward",
        "modify it at pre_train_backward",
        frozenset({"post_train_backward"}),
    ),
    TooLate(
        ("update_ends",),
        "the batch has had a backward, so it is decided whether its window ends",
        "modify it at pre_train_step_batch",
        _FROM_BACKWARD,
    ),
    TooLate(("update_begins",), "the loop sets it", "modify update_ends at pre_train_step_batch"),
    TooLate(("epoch_num", "step_num", "update_num", "samples_seen"), "the loop counts it", _COUNT),
    TooLate(("start_step", "end_step", "phase_name"), "the loop sets it", "provide a fixture of another name"),
    TooLate(("device",), "the loop moves batches to what the train_manager has", "set train_manager.device"),
    TooLate(("batch_num", "batches_done"), "the loop counts it", "provide a fixture of another name"),
    TooLate(("model",), "the loop calls what the train_manager has", "set train_manager.called_model"),
    TooLate(
        ("optimizer", "optimizer_name"),
        "the loop steps what the train_manager has",
        "set train_manager.optimizer before the run",
    ),
)
"""Where a hook may not modify a fixture."""
