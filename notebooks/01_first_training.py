# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A first training
#
# This notebook trains a small network to read handwritten digits, and shows on the way how Train Manager works.
# It takes less than half a minute and downloads nothing. The digits come from scikit-learn: `pip install ".[demo]"`.
#
# The idea in one sentence: **the training loop does only the training; everything else, such as plots, progress bars
# and accuracies, is an extension.**

# %%
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import TensorDataset

from train_manager import Extension, SeededDataLoader, TrainManager
from train_manager.errors import CheckError
from train_manager.extensions import Checkpoints, default_extensions
from train_manager.stages import MAP

# %% [markdown]
# ## The data
#
# Scikit-learn brings 1,797 digits of 8x8 pixels. 450 of them are held out: the network is not trained on them,
# so they show how well it reads digits that it has not seen.

# %%
images, labels = load_digits(return_X_y=True)
images = images.reshape(-1, 1, 8, 8).astype("float32") / 16
parts = train_test_split(images, labels, test_size=450, random_state=0, stratify=labels)
images, held_out_images, labels, held_out_labels = map(torch.from_numpy, parts)
print(tuple(images.shape), tuple(held_out_images.shape))

# %% [markdown]
# ## The network
#
# Any `torch.nn.Module` can be trained. This one is that of `make demo`: three convolutions and a linear layer.


# %%
def convolution(channels, wider):
    return nn.Sequential(nn.Conv2d(channels, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.ReLU(), nn.MaxPool2d(2))


torch.manual_seed(0)
layers = [convolution(1, 32), convolution(32, 64), convolution(64, 128)]
network = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(), nn.Linear(128, 10))

# %% [markdown]
# ## The training
#
# A `TrainManager` takes the network, the loss, an optimizer and the data. `train_data` is any iterable of
# batches; a batch is a pair of inputs and targets. Each set in `eval_data` has a name. It is evaluated before the first
# epoch and after every epoch.
#
# `default_extensions()` is the usual set of extensions: a progress bar, a line for each epoch in a table that grows
# while the network is trained, curves of the loss, and checkpoints. Extensions write their files into `train_dir`. A
# folder that has checkpoints is never overwritten: `resume="fresh"` moves it aside if you run this again, and
# `resume=True` would resume from where it was. For that the data have to be able to resume, too: `SeededDataLoader` is
# torch's `DataLoader` in an order that can be repeated.

# %%
tm = TrainManager(
    model=network,
    loss=nn.functional.cross_entropy,
    optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
    lr_schedule=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12),
    epochs=12,
    train_data=SeededDataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True, seed=0),
    eval_data={"held out": [(held_out_images, held_out_labels)]},
    extensions=[default_extensions(), Checkpoints(resume="fresh")],
    train_dir="runs/first",
)
result = tm.train()

# %% [markdown]
# A row is the mean loss of the training over the epoch, the loss of the held-out digits after it, and the seconds.
# "best" says that no evaluation before it was as good.
#
# ## The curves
#
# `tm["loss_curves"]` is the extension of that name. As the last line of a cell it shows its picture: the loss by
# epoch, by batch, and by the number of examples seen.

# %%
tm["loss_curves"]

# %% [markdown]
# The same picture is a file in the folder of this training. Beside it are the checkpoints of the newest three epochs
# and of the best one: a folder each, whose name is the step.

# %%
sorted(str(file) for file in tm.train_dir.glob("*/*"))

# %% [markdown]
# ## An extension of your own
#
# How many of the held-out digits are read correctly? The loop does not measure it, so we write an extension that does.
#
# The loop is divided into **stages**. One of them is `eval_step_batch`, the evaluation of one batch. While it is open,
# extensions can read some values, such as the `prediction` of the network and the `targets`. These values are called
# **fixtures**.
#
# An **extension** is an object with methods that are named after stages: `pre_eval_step_batch` runs before the body of
# the stage and `post_eval_step_batch` after it. These methods are called **hooks**. The parameters of a hook are the
# names of the fixtures that it reads, in any order.


# %%
class Accuracy(Extension):
    def pre_eval_step_epoch(self):
        self.right = self.seen = 0

    def post_eval_step_batch(self, prediction, targets):
        self.right += (prediction.argmax(dim=1) == targets).sum().item()
        self.seen += len(targets)


accuracy = Accuracy()
tm.add_extension(accuracy)
tm.eval()

# %%
f"{accuracy.right} of {accuracy.seen} right, or {accuracy.right / accuracy.seen:.1%}"

# %% [markdown]
# The loop is not changed, and the extension works in every other training too. It can also be
# tested without a training, because a hook is a plain method:

# %%
by_hand = Accuracy()
by_hand.pre_eval_step_epoch()
by_hand.post_eval_step_batch(prediction=torch.tensor([[0.9, 0.1], [0.2, 0.8]]), targets=torch.tensor([0, 0]))
print(by_hand.right, "of", by_hand.seen)

# %% [markdown]
# ## When a name is wrong
#
# A hook that names a fixture that is not alive gets an error, not `None`. The error names the hook and suggests the
# right name.


# %%
class Misspelt(Extension):
    def post_eval_step_batch(self, predictions):
        print(predictions)


tm.add_extension(Misspelt(), name="misspelt")
try:
    tm.eval()
except CheckError as error:
    print(error.mistakes[0].what)
    print(error.mistakes[0].cure)
removed = tm.remove_extension("misspelt")

# %% [markdown]
# ## All stages
#
# This is the whole loop: every stage, and after the `#` the fixtures that begin in it. A fixture is alive until its
# stage ends, also in all the stages inside it.

# %%
print(MAP)

# %% [markdown]
# ## More epochs
#
# `train()` has trained the 12 epochs of `epochs=12`. `train_epochs(n)` trains `n` more, and the curves in
# the folder grow.

# %%
tm.train_epochs(2)
print(tm.epoch_num, "epochs,", tm.step_num, "batches")
