"""The map of the loop: every stage in the order in which it opens, with the fixtures that it owns.

``manager.py`` has the same shape, and a test compares the stages and fixtures of a run with the map. ``print(MAP)``
shows it.
"""

from __future__ import annotations

from typing import Final

MAP: Final = """
with staged("run"):  # model, phase_name, epoch_num, step_num, update_num, samples_seen, start_step, end_step, standalone_eval, train_dir
    with staged("load_checkpoint"):              # checkpoint_loaded
        a hook may load a checkpoint, and then modifies checkpoint_loaded
    in train_on_batch: train_step_batch, as below, by itself
    with staged("train"):
        as eval_at says: eval, as below
        for each epoch:
            with staged("train_step_epoch"):
                until the data ends, or a hook has ended the epoch (end_epoch, stop):
                    if a hook has requested it (eval_soon): eval, as below
                    with staged("train_step_batch"):     # batch, batch_num, datasource_name, update_begins, update_ends, losses
                        inputs, targets = unpack_batch(batch)             # of train_step_batch
                        true_batch_size = get_true_batch_size(batch)      # of train_step_batch
                        global_batch_size = true_batch_size               # of train_step_batch
                        train_batch(...), here update(forward()):
                            with staged("train_model_forward"):
                                prediction = train_model_forward(...)     # of train_step_batch
                            with staged("train_loss_forward"):
                                loss = train_loss_forward(...)            # of train_step_batch
                            with staged("train_backward"):                # backward_loss, optimizer, optimizer_name
                                backward_loss.backward()
                            if update_ends:
                                with staged("train_optimizer_step"):      # optimizer, optimizer_name
                                    optimizer.step(), then its gradients are freed
                                    update_num += 1
                        step_num += 1
                lr_schedule.step()
                epoch_num += 1
            as eval_at says: eval, as below
    with staged("eval"):                         # eval_results
        for name, data in eval_data:
            with staged("eval_step_epoch"):      # datasource_name, eval_result
                for batch in data:
                    with staged("eval_step_batch"):      # batch, losses
                        inputs, targets = unpack_batch(batch)             # of eval_step_batch
                        true_batch_size = get_true_batch_size(batch)      # of eval_step_batch
                        eval_batch(...), here forward():
                            with staged("eval_model_forward"):
                                prediction = eval_model_forward(...)      # of eval_step_batch
                            with staged("eval_loss_forward"):
                                loss = eval_loss_forward(...)             # of eval_step_batch
                eval_result = {"loss": mean over examples}
        eval_results = {name: eval_result}
    with staged("predict"):                      # predictions
        for batch in data:
            with staged("predict_step_batch"):   # batch, inputs
                prediction = eval_model_forward(...)                      # of predict_step_batch
        predictions = all of them, joined
"""
