"""What an editor knows of a manager: for type checkers, which find an error where a type is another one."""

from typing import Any, assert_type

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager import Extension, TrainManager
from train_manager.extensions import EMA


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2)


class Watch(Extension):
    def post_train_step_batch(self, inputs: Tensor, prediction: Tensor, loss: Tensor, step_num: int) -> None:
        print(inputs.shape, prediction.argmax(dim=1), loss.item(), step_num + 1)


def by_name(train_manager: TrainManager) -> None:
    assert_type(train_manager.model, Any)


tm = TrainManager(model=Net(), loss=nn.functional.cross_entropy, optimizer=torch.optim.AdamW, extensions=[EMA()])
assert_type(tm.model, Net)
assert_type(tm.model.head, nn.Linear)
assert_type(tm.optimizer, Optimizer)
assert_type(tm.optimizers["generator"], Optimizer)
assert_type(tm.extension(EMA), EMA)
assert_type(tm.extension(EMA).warm_up, bool)
assert_type(tm["ema"], Any)
assert_type(tm.add_extension(Watch()), Watch)
assert_type(tm.train().epochs, int)
tm.optimizer = {"generator": torch.optim.AdamW(tm.model.parameters())}
