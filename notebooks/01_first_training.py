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
# It takes about ten seconds and downloads nothing.
#
# The idea in one sentence: **the training loop does only the training; everything else, such as plots, progress bars
# and accuracies, is an extension that looks on.**

# %%
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from train_manager import CheckError, Extension, TrainManager
from train_manager.extensions import default_extensions
from train_manager.stages import MAP

# %% [markdown]
# ## The data
#
# Scikit-learn brings 1,797 digits of 8x8 pixels. We hold 450 of them out: the network will never be trained on those,
# so they tell us how well it reads digits that it has not seen.

# %%
images, labels = load_digits(return_X_y=True)
images = images.reshape(-1, 1, 8, 8).astype("float32") / 16
parts = train_test_split(images, labels, test_size=450, random_state=0, stratify=labels)
images, held_out_images, labels, held_out_labels = map(torch.from_numpy, parts)
print(tuple(images.shape), tuple(held_out_images.shape))

# %% [markdown]
# ## The network
#
# Any `torch.nn.Module` will do. This one has two layers of convolutions and one that decides.

# %%
torch.manual_seed(0)
network = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.BatchNorm2d(64),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Dropout(),
    nn.Linear(64 * 2 * 2, 10),
)

# %% [markdown]
# ## The training
#
# A `TrainManager` is given the network, the loss, an optimizer and the data. `train_data` is anything that gives
# batches; a batch is a pair of inputs and targets. Each set in `eval_data` has a name. It is evaluated before the first
# epoch and after every epoch.
#
# `default_extensions()` is the usual set of extensions: a progress bar, which keeps quiet in a notebook and wakes up in
# a terminal, and curves of the loss. What extensions write goes into `train_dir`.

# %%
tm = TrainManager(
    model=network,
    loss=nn.functional.cross_entropy,
    optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
    epochs=10,
    train_data=DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True),
    eval_data={"held out": [(held_out_images, held_out_labels)]},
    extensions=default_extensions(),
    train_dir="runs/first",
)
tm.train()

# %% [markdown]
# ## The curves
#
# `tm["loss_curves"]` is the extension of that name. As the last line of a cell it shows what it has drawn: the loss by
# epoch, by batch, and by the number of examples seen.

# %%
tm["loss_curves"]

# %% [markdown]
# The same picture lies in the folder of this training, and was renewed after every epoch.

# %%
sorted(str(file) for file in tm.train_dir.rglob("*.*"))

# %% [markdown]
# ## An extension of your own
#
# How many of the held-out digits are read correctly? The loop does not know. We ask for what we need to find out.
#
# The loop is divided into **stages**. One of them is `eval_step_batch`, the evaluation of one batch. While it is open,
# some values are alive that others may want to see, such as the `prediction` of the network and the `targets`. These
# are called **fixtures**.
#
# An **extension** is an object with methods that are named after stages: `pre_eval_step_batch` runs before the body of
# the stage and `post_eval_step_batch` after it. These methods are called **hooks**. The parameters of a hook are the
# names of the fixtures that it wants, in any order.


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
# Nothing had to be changed in the loop, and the extension can be used in every other training as it is. It can also be
# tested without any training, because a hook is a plain method:

# %%
by_hand = Accuracy()
by_hand.pre_eval_step_epoch()
by_hand.post_eval_step_batch(prediction=torch.tensor([[0.9, 0.1], [0.2, 0.8]]), targets=torch.tensor([0, 0]))
print(by_hand.right, "of", by_hand.seen)

# %% [markdown]
# ## When a name is wrong
#
# A hook that asks for a fixture that is not there gets no `None`. It gets an error that says who asked, and what the
# name may have been meant to be.


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
# This is the whole loop: every stage, and behind the `#` the fixtures that are born in it. A fixture is alive until its
# stage ends, also in all the stages inside it.

# %%
print(MAP)

# %% [markdown]
# ## Going on
#
# `train()` has reached the 10 epochs that were asked for. `train_epochs(n)` trains some more, and the curves in
# the folder grow with it.

# %%
tm.train_epochs(2)
print(tm.epoch_num, "epochs,", tm.step_num, "batches")
