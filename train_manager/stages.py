"""The map of the loop: every stage in the order in which it opens, with the fixtures that it owns.

``loop/training.py`` has the same shape, and a test compares the stages and fixtures of a run with the map.
``print(MAP)`` shows it. ``TOO_LATE`` says from which point on a hook may not modify a fixture, because the loop has
used it by then.
"""

from __future__ import annotations

from typing import Final

from train_manager.checker.too_late import TooLate

MAP: Final = """
with staged("run"):                              # model, phase_name, epoch_num, step_num, update_num, samples_seen,
                                                 # start_step, end_step, standalone_eval, batch_losses, train_dir,
                                                 # device
    with staged("load_checkpoint"):              # checkpoint_loaded
        a hook may load a checkpoint, and then modifies checkpoint_loaded
    with staged("train"):
        if eval_at says so, before the first epoch: eval, as below
        for each epoch:
            with staged("train_step_epoch"):         # batches_done
                until the data ends, or a hook has ended the epoch (end_epoch, stop):
                    if a hook has requested it (eval_soon): eval, as below
                    if a hook has requested it (save_soon), or at the end of the call:
                        with staged("save_checkpoint"):           # checkpoint_saved
                            a hook may save a checkpoint, and then modifies checkpoint_saved
                    with staged("train_step_batch"):  # batch, batch_num, datasource_name, update_begins, update_ends,
                                                      # losses; lazy: last_batch, example_index, data_seconds,
                                                      # loss_parts
                        inputs, targets = unpack_batch(...)               # of train_step_batch
                        true_batch_size = get_true_batch_size(...)        # of train_step_batch
                        global_batch_size = true_batch_size               # of train_step_batch
                        if nothing looks into the four stages below: the same without opening them; else
                        train_batch(...), by default update(forward()), where forward() is:
                            with staged("train_model_forward"):
                                prediction = train_model_forward(...)     # of train_step_batch
                            with staged("train_loss_forward"):
                                loss = train_loss_forward(...)            # of train_step_batch
                        and update(loss) is, as often as it is called:
                            with staged("train_backward"):                # backward_loss, optimizer, optimizer_name
                                backward_loss.backward()
                            if update_ends:
                                with staged("train_optimizer_step"):      # optimizer, optimizer_name
                                    optimizer.step(), then its gradients are freed
                                    update_num += 1
                        step_num += 1
                lr_schedule.step()
                epoch_num += 1
                train_result = {"loss": mean over examples}               # of train_step_epoch
            if eval_at says so, after the epoch: eval, as below
            if a hook has requested it: save_checkpoint, as above
        if eval_at says so, after the last epoch: eval, as below
    if a loop of yours calls train_on_batch: train_step_batch, as above
    if it calls end_epoch after such batches, or a hook of theirs does:
        with staged("train_step_epoch"):         # batches_done
            lr_schedule.step()
            epoch_num += 1
            train_result = {"loss": mean over examples}                   # of train_step_epoch
    if its hooks have requested it: save_checkpoint, as above
    with staged("eval"):                         # eval_results
        for name, data in eval_data:
            with staged("eval_step_epoch"):      # datasource_name, eval_result
                for batch in data:
                    with staged("eval_step_batch"):      # batch, losses
                        inputs, targets = unpack_batch(...)               # of eval_step_batch
                        true_batch_size = get_true_batch_size(...)        # of eval_step_batch
                        eval_batch(...), by default forward(), which here is:
                            with staged("eval_model_forward"):
                                prediction = eval_model_forward(...)      # of eval_step_batch
                            with staged("eval_loss_forward"):
                                loss = eval_loss_forward(...)             # of eval_step_batch
                eval_result = {"loss": mean over examples}
        eval_results = {name: eval_result}
    with staged("predict"):                      # predictions
        for batch in data:
            with staged("predict_step_batch"):   # batch
                inputs = unpack_batch(...)                                # of predict_step_batch
                prediction = eval_model_forward(...)                      # of predict_step_batch
        predictions = all of them, joined
    with staged("phase"):
        what is called inside `with tm.phase(...)`: train, eval, predict
"""


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
