"""The map of the loop: every stage in the order in which it opens, with the fixtures that it owns.

``manager.py`` has the same shape, and a test compares the stages and fixtures of a run with the map. ``print(MAP)``
shows it.
"""

from __future__ import annotations

from typing import Final

MAP: Final = """
with staged("run"):  # epoch_num, step_num, update_num, samples_seen, start_step, end_step, standalone_eval, train_dir
    with staged("load_checkpoint"):              # checkpoint_loaded
        a hook may load a checkpoint, and then modifies checkpoint_loaded
    in train_on_batch: train_step_batch, as below, by itself
    with staged("train"):
        before the first epoch: eval, as below
        for each epoch:
            with staged("train_step_epoch"):
                for batch in train_data:
                    if a hook has requested it (eval_soon): eval, as below
                    with staged("train_step_batch"):     # batch, last_batch, losses, inputs, targets, true_batch_size
                        with staged("train_model_forward"):
                            prediction = train_model_forward(...)         # of train_step_batch
                        with staged("train_loss_forward"):
                            loss = train_loss_forward(...)                # of train_step_batch
                        backward_loss = loss                              # of train_step_batch
                        with staged("train_backward"):
                            backward_loss.backward()
                        with staged("train_optimizer_step"):
                            optimizer.step(), then gradients are zeroed
                            update_num += 1
                        step_num += 1
                lr_schedule.step()
                epoch_num += 1
            after each epoch: eval, as below
    with staged("eval"):                         # eval_results
        for name, data in eval_data:
            with staged("eval_step_epoch"):      # datasource_name, eval_result
                for batch in data:
                    with staged("eval_step_batch"):      # batch, losses, inputs, targets, true_batch_size
                        with staged("eval_model_forward"):
                            prediction = eval_model_forward(...)          # of eval_step_batch
                        with staged("eval_loss_forward"):
                            loss = eval_loss_forward(...)                 # of eval_step_batch
                eval_result = {"loss": mean over examples}
        eval_results = {name: eval_result}
"""
