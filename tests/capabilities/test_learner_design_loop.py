"""Rows F01-F03 and F21 of the capabilities: the proposed Learner, as a TrainManager."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

import train_manager.manager
from train_manager import Extension, TrainManager
from train_manager.testing import Recorder, tiny_manager


class Watch(Extension):
    """Reads all there is, before and after each stage."""

    read = 0

    def pre_stage(self, **fixtures: object) -> None:
        self.read += len(fixtures)

    def post_stage(self, **fixtures: object) -> None:
        self.read += len(fixtures)

    def around_stage(self) -> Iterator[None]:
        yield


def weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters())


def test_f01_one_object_of_model_data_and_training_logic_runs_epochs_and_the_loss_falls() -> None:
    torch.manual_seed(0)
    x = torch.rand(64, 3)
    batches = [(part, part.sum(dim=1, keepdim=True)) for part in x.split(16)]
    losses: list[float] = []

    class Losses(Extension):
        def post_eval(self, eval_results: dict[str, dict[str, float]]) -> None:
            losses.append(eval_results["validation"]["loss"])

    learner = TrainManager(
        model=nn.Linear(3, 1),
        train_data=batches[:3],
        eval_data={"validation": batches[3:]},
        loss=F.mse_loss,
        optimizer=lambda parameters: SGD(parameters, lr=0.1),
        epochs=4,
        extensions=[Losses()],
    )
    learner.train()

    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 5


def test_f02_the_loop_imports_no_plotting_no_logging_and_no_extension() -> None:
    tree = ast.parse(Path(train_manager.manager.__file__).read_text(encoding="utf-8"))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}

    assert not {name for name in imported if name.split(".")[0] in ("logging", "matplotlib", "tqdm")}
    assert not {name for name in imported if name.startswith("train_manager.extensions")}
    assert "print" not in called


def test_f02_removing_every_extension_gives_the_same_weights_bit_for_bit() -> None:
    with_extensions, without = tiny_manager(Watch(), Recorder(), epochs=2), tiny_manager(epochs=2)
    removed = tiny_manager(Watch(), Recorder(), epochs=2)
    for name in list(removed.extensions):
        removed.remove_extension(str(name))
    for tm in (with_extensions, without, removed):
        tm.train()

    assert torch.equal(weights(with_extensions.model), weights(without.model))
    assert torch.equal(weights(removed.model), weights(without.model))


def test_f03_a_training_is_the_declared_sequence_of_stages() -> None:
    recorder = Recorder()
    tiny_manager(recorder, train_data=tiny_batches(1), eval_data={"valid": tiny_batches(1)}).train()
    evaluation = ["eval", "eval_step_epoch", "eval_step_batch", "eval_model_forward", "eval_loss_forward"]
    epoch = ["train_step_epoch", "train_step_batch", "train_model_forward", "train_loss_forward"]
    epoch += ["train_backward", "train_optimizer_step"]

    assert recorder.stages == ["run", "load_checkpoint", "train", *evaluation, *epoch, *evaluation]


def tiny_batches(n: int) -> list[tuple[Tensor, Tensor]]:
    return [(torch.ones(2, 2), torch.zeros(2, dtype=torch.long))] * n


def test_f21_a_hook_between_gradient_and_update_sees_the_gradients_and_changes_them() -> None:
    class Clip(Extension):
        norms: list[float] = []

        def post_train_backward(self, train_manager: TrainManager) -> None:
            norm = nn.utils.clip_grad_norm_(train_manager.model.parameters(), max_norm=1e-9)
            self.norms.append(norm.item())

    clipped = tiny_manager(Clip())
    before = weights(clipped.model).detach().clone()
    clipped.train()

    assert min(Clip.norms) > 0
    torch.testing.assert_close(weights(clipped.model).detach(), before, rtol=0, atol=1e-7)


def test_f21_gradient_and_update_are_stages_one_after_the_other() -> None:
    recorder = Recorder()
    tiny_manager(recorder).train()
    hooks = recorder.hooks

    assert hooks[hooks.index("post_train_backward") + 1] == "pre_train_optimizer_step"
