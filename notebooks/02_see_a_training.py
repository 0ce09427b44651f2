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
# # See a training
#
# A small network learns to tell two interleaved half circles apart. First the usual pictures show how it goes; then
# we write a picture of our own, which is renewed while the network is trained. It takes a few seconds and downloads
# nothing.

# %%
import matplotlib.pyplot as plt
import torch
from IPython.display import display
from sklearn.datasets import make_moons
from torch import nn

from train_manager import Extension, InMemory, TrainManager
from train_manager.extensions import Live, Metrics, ProgressBar

# %% [markdown]
# ## The data and the network


# %%
def moons(count, seed):
    points, labels = make_moons(count, noise=0.2, random_state=seed)
    return torch.from_numpy(points).float(), torch.from_numpy(labels)


points, labels = moons(1000, seed=0)
held_out = moons(200, seed=1)

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))


def accuracy(prediction, targets):
    return prediction.argmax(dim=1) == targets


# %% [markdown]
# ## Pictures that are there
#
# `Live` shows the loss and the first metric while the network is trained. The picture is renewed once a second, in
# one place, and costs a few milliseconds.

# %%
tm = TrainManager(
    model=network,
    loss=nn.functional.cross_entropy,
    optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    epochs=20,
    train_data=InMemory(points, labels, batch_size=25, shuffle=True),
    eval_data={"held out": [held_out]},
    extensions=[ProgressBar(), Live(), Metrics(accuracy=accuracy, table=True)],
)
result = tm.train()

# %% [markdown]
# Other pictures are drawn when they are asked for. `tm.history.plot()` shows what each epoch has measured; with the
# extension `LossCurves`, `tm["loss_curves"]` as the last line of a cell has every batch.

# %%
tm.history.plot()

# %% [markdown]
# ## A picture of your own
#
# What does the network say of each place in the plane? An extension can draw it while the network is trained. Its hook
# `post_train_step_epoch` runs at the end of each epoch. IPython's `display` returns a handle, whose `update` replaces
# the picture: the cell keeps a single output, however long it trains.


# %%
class Boundary(Extension):
    """Draw which class the network sees where, after each epoch."""

    def __init__(self, points, labels):
        self.points, self.labels = points, labels
        x, y = torch.meshgrid(torch.linspace(-1.8, 2.8, 60), torch.linspace(-1.3, 1.8, 45), indexing="xy")
        self.x, self.y = x, y

    def pre_train(self):
        self.figure, self.axes = plt.subplots(figsize=(6, 3.6))
        plt.close(self.figure)  # else the cell would show it once more at its end
        self.output = display(self.figure, display_id=True)

    def post_train_step_epoch(self, model, epoch_num):
        with torch.no_grad():
            seen = model(torch.stack([self.x, self.y], dim=-1).flatten(0, 1)).softmax(dim=1)[:, 1]
        self.axes.clear()
        self.axes.contourf(self.x, self.y, seen.view_as(self.x), levels=10, cmap="coolwarm", alpha=0.7)
        self.axes.scatter(*self.points.T, c=self.labels, s=8, cmap="coolwarm", edgecolors="black", linewidths=0.3)
        self.axes.set_title(f"epoch {epoch_num}")
        self.output.update(self.figure)


tm.add_extension(Boundary(*held_out))
result = tm.train_epochs(10)
