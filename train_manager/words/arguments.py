"""The names that arguments and attributes of a TrainManager have in other tools, and the code to write instead."""

from __future__ import annotations

from typing import Final

# For an argument, or a sentence on what to write: the words of other tools, separated by spaces.
_MEANT: Final = {
    # arguments of the constructor
    "model": "net network module",
    "loss": "criterion loss_fn loss_func loss_function objective compute_loss",
    "optimizer": "optim opt optimizers",
    "lr_schedule": "scheduler lr_scheduler schedulers",
    "train_data": "data data_loader dataset dataloader loader train_loader train_dataloader train_dataloaders "
    "train_dataset train_set training_data",
    "eval_data": "validation_data valid_data val_data val_loader valid_loader val_dataloader val_dataloaders "
    "eval_dataset eval_loader",
    "epochs": "max_epochs num_epochs n_epochs nb_epochs num_train_epochs",
    "device": "accelerator",
    "extensions": "callbacks callback plugins hooks",
    "train_dir": "log_dir output_dir save_dir checkpoint_dir default_root_dir",
    "seed": "random_state",
    # arguments of the optimizer and of the data
    "the optimizer has it: optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=...)": "lr learning_rate",
    "the optimizer has it: optimizer=lambda parameters: torch.optim.AdamW(parameters, weight_decay=...)": (
        "weight_decay"
    ),
    "evaluate it after the training: tm.eval(test_data)": "test_data",
    "evaluate it after the training: tm.eval(test_loader)": "test_loader",
    "the data has it: train_data=InMemory(x, y, batch_size=...), or DataLoader(dataset, batch_size=...)": "batch_size",
    "the data has it: train_data=InMemory(x, y, batch_size=64, shuffle=True), or a DataLoader": "shuffle",
    "the DataLoader has it: train_data=DataLoader(dataset, batch_size=64, num_workers=...)": "num_workers",
    # the length of the training, and its device
    "say it where you train: tm.train_steps(...); or cut epochs with steps_per_epoch=": "max_steps",
    "an extension has it: extensions=[EarlyStopping(patience=...)]": "patience",
    "an extension does it: extensions=[EarlyStopping(patience=...)]": "early_stopping",
    'torchrun has it: --nproc-per-node, with device="cuda" and extensions=[Distributed()]': (
        "devices gpus num_gpus num_nodes"
    ),
    "an extension trains on several: extensions=[Distributed()], and torchrun": "strategy distributed ddp fsdp",
    'write device="cuda"': "gpu cuda",
    # tasks of extensions
    "an extension sets it: extensions=[MixedPrecision()]": "precision bf16 amp",
    "an extension sets it: extensions=[MixedPrecision(torch.float16)]": "fp16",
    "an extension clips: extensions=[ClipGradients(max_norm=...)]": "gradient_clip_val max_grad_norm grad_clip",
    "an extension gathers: extensions=[Accumulate(...)]": "accumulate_grad_batches gradient_accumulation_steps",
    "an extension sets it: extensions=[Deterministic()]": "deterministic",
    "an extension measures: extensions=[Metrics('accuracy')], or Metrics(name=function)": "metrics compute_metrics",
    "extensions log: extensions=[Log()]": "logger loggers",
    "extensions show a training: extensions=[ProgressBar()], or Log(); without them it is silent": "verbose",
    "an extension shows it: extensions=[ProgressBar()]": "enable_progress_bar progress_bar",
    "an extension logs: extensions=[Log(every=...)]": "log_every_n_steps",
    "an extension saves: extensions=[Checkpoints()], with train_dir=": (
        "checkpoint checkpoints checkpointing enable_checkpointing save_checkpoint save_strategy"
    ),
    "an extension resumes: extensions=[Checkpoints(resume=True)], with train_dir=": (
        "ckpt_path resume resume_from_checkpoint resume_training"
    ),
    "an extension keeps n: extensions=[Checkpoints(keep=...)], with train_dir=": "save_total_limit save_top_k",
}

ARGUMENTS: Final = {word: meant for meant, words in _MEANT.items() for word in words.split()}
"""Word of another tool -> the argument that is meant, or a sentence on what to write instead."""

METHODS: Final = {
    "fit": "tm.train()",
    "evaluate": "tm.eval()",
    "validate": "tm.eval()",
    "test": "tm.eval(test_data)",
    "score": "tm.eval()",
    "fit_one_cycle": "tm.train(), with lr_schedule= or the extension LRSchedule",
    "lr_find": "lr_finder(tm), of train_manager",
    "summary": "summary(tm), of train_manager",
    **dict.fromkeys(
        ("log", "log_dict", "log_metrics"),
        "report_loss(value, name) for a part of the loss, or the extension Metrics(name=function) for another number",
    ),
    "save": "torch.save(tm.model.state_dict(), path); the extension Checkpoints saves all else too",
    "load": "tm.load_weights(path); Checkpoints(resume=True) restores all else too",
    "lr": "tm.optimizer.param_groups[0]['lr']; with LRSchedule hooks may name the fixture learning_rates",
    "save_checkpoint": "tm.save_soon() in a hook, with the extension Checkpoints",
    "load_checkpoint": "tm.load_weights(path); Checkpoints(resume=True) restores all else too",
    "resume": "tm.train(), with the extension Checkpoints(resume=True)",
    "current_epoch": "tm.epoch_num",
    "global_step": "tm.step_num",
    "epoch": "tm.epoch_num",
    "step_count": "tm.step_num",
    "callbacks": "tm.extensions",
    "should_stop": "tm.stop(reason)",
    "parameters": "tm.model.parameters()",
    "to": "TrainManager(..., device=...)",
    "cuda": 'TrainManager(..., device="cuda")',
}
"""Attribute of other tools' objects -> the counterpart of a TrainManager, as code."""
