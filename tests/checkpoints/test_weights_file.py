"""Weights come from a checkpoint, a .safetensors file or a file of torch.save; all else is refused with a cure."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.checkpoints.hostile import Runs
from tests.checkpoints.states import same
from train_manager.checkpoints.checkpoint import write_checkpoint
from train_manager.checkpoints.tensors import DTYPES, content_of
from train_manager.checkpoints.weights_file import read_weights
from train_manager.errors import CheckpointError


class Extra(nn.Linear):
    """A module with a state beside its tensors."""

    def get_extra_state(self) -> dict[str, Any]:
        return {"version": (1, 2.5, "x", None, True), "table": torch.ones(2)}

    def set_extra_state(self, state: Any) -> None:
        assert state["version"] == (1, 2.5, "x", None, True)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def plain(model: nn.Module) -> dict[str, Any]:
    return dict(model.state_dict())


def refusal(path: Path) -> str:
    """What is said of a file, after its path."""
    with pytest.raises(CheckpointError) as info:
        read_weights(path)
    return str(info.value).replace(f"{path} ", "", 1)


def test_the_model_of_a_checkpoint_is_read(tmp_path: Path, model: nn.Module) -> None:
    path = write_checkpoint(tmp_path, "step-000000000001", {"model": model.state_dict(), "step": 1}, {})

    assert same(read_weights(path), plain(model))


def test_a_safetensors_file_is_read_also_by_a_link(tmp_path: Path, model: nn.Module) -> None:
    (tmp_path / "blob").write_bytes(b"".join(content_of(plain(model))))
    (tmp_path / "model.safetensors").symlink_to("blob")  # as a hub's cache has it

    assert same({name: read_weights(tmp_path / "model.safetensors")[name] for name in plain(model)}, plain(model))


@pytest.mark.parametrize("place", [None, "state_dict", "model_state_dict", "model"])
def test_a_state_dict_of_torch_is_read_also_from_one_level_below(
    tmp_path: Path, model: nn.Module, place: str | None
) -> None:
    weights = model.state_dict()
    torch.save(weights if place is None else {"epoch": 3, place: weights, "args": {"lr": 0.1}}, tmp_path / "x.pt")

    assert same(read_weights(str(tmp_path / "x.pt")), plain(model))


def test_a_tensor_beside_the_state_dict_is_not_one_of_the_weights(tmp_path: Path, model: nn.Module) -> None:
    best = torch.tensor(1.5)  # as nanoGPT saves its best loss
    torch.save({"model": model.state_dict(), "iter_num": 3, "best_val_loss": best}, tmp_path / "ckpt.pt")

    assert same(read_weights(tmp_path / "ckpt.pt"), plain(model))


def test_parameters_come_back_as_plain_tensors(tmp_path: Path, model: nn.Module) -> None:
    torch.save(dict(model.named_parameters()), tmp_path / "x.pt")

    assert {(type(value), value.requires_grad) for value in read_weights(tmp_path / "x.pt").values()} == {
        (Tensor, False)
    }


def test_the_extra_state_of_a_module_comes_along(tmp_path: Path) -> None:
    torch.save(Extra(2, 1).state_dict(), tmp_path / "x.pt")
    path = write_checkpoint(tmp_path, "step-000000000001", {"model": Extra(2, 1).state_dict()}, {})

    for source in (tmp_path / "x.pt", path):
        Extra(2, 1).load_state_dict(read_weights(source))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weights_of_each_dtype_are_read(tmp_path: Path, dtype: torch.dtype) -> None:
    weights = {"a": torch.ones(3).to(dtype), "b": torch.ones(4, 6).to(dtype).T[1:3, ::2], "c": torch.ones(()).to(dtype)}
    torch.save(weights, tmp_path / "x.pt")

    assert same(read_weights(tmp_path / "x.pt"), weights)


def test_a_whole_model_is_refused_with_a_cure(tmp_path: Path, model: nn.Module) -> None:
    torch.save(model, tmp_path / "x.pt")

    assert refusal(tmp_path / "x.pt") == (
        "would import torch.nn.modules.container.Sequential, which weights do not need\n"
        "  nothing of it was run; if you trust it: load it with torch, and save its state_dict() alone"
    )


@pytest.mark.parametrize("way", ["old torch", "pickle"])
def test_a_file_of_an_old_torch_is_refused_with_a_cure(tmp_path: Path, model: nn.Module, way: str) -> None:
    if way == "pickle":
        (tmp_path / "x.pt").write_bytes(pickle.dumps(Runs(print)))
    else:
        torch.save(model.state_dict(), tmp_path / "x.pt", _use_new_zipfile_serialization=False)

    assert refusal(tmp_path / "x.pt") == (
        "was written by a torch before 1.6, or by pickle\n"
        "  if you trust it: torch.save(torch.load('x.pt', weights_only=True), 'x.pt')"
    )


@pytest.mark.parametrize("names", [["y/other"], ["x/data.pkl", "z/data.pkl"], ["x/data.pkl", "x/constants.pkl"]])
def test_another_zip_file_is_refused(tmp_path: Path, names: list[str]) -> None:
    with zipfile.ZipFile(tmp_path / "x.pt", "w") as archive:
        for name in names:
            archive.writestr(name, b"\x80\x02}.")

    assert refusal(tmp_path / "x.pt").startswith("is damaged, or is not a file of torch.save: ")


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([torch.ones(1)], "holds a list, not a dict of tensors"),
        (
            {"epoch": 3, "net": {"weight": torch.ones(1)}},
            "has no weights: it holds epoch, net\n"
            "  they must be at its top, or in one of state_dict, model_state_dict, model",
        ),
    ],
    ids=["list", "elsewhere"],
)
def test_a_file_without_weights_where_they_are_looked_for_is_refused(tmp_path: Path, found: Any, told: str) -> None:
    torch.save(found, tmp_path / "x.pt")

    assert refusal(tmp_path / "x.pt") == told


def test_an_entry_among_the_weights_that_is_none_is_named(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(1), "epoch": 3}, tmp_path / "x.pt")

    with pytest.raises(CheckpointError) as info:
        read_weights(tmp_path / "x.pt")

    assert str(info.value) == f"'epoch' in {tmp_path}/x.pt is of type int, not a tensor"


@pytest.mark.parametrize("content", [b"", b"text", b"\x89PNG\r\n\x1a\n" + bytes(99)])
def test_any_other_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.pt").write_bytes(content)

    assert refusal(tmp_path / "x.pt") == (
        "has no weights: it is not a checkpoint, a .safetensors file or a file of torch.save"
    )


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "x.pt") == "cannot be read: No such file or directory"


def test_a_truncated_file_of_torch_is_refused(tmp_path: Path, model: nn.Module) -> None:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    (tmp_path / "x.pt").write_bytes(file.getvalue()[:-30])

    assert refusal(tmp_path / "x.pt").startswith("is damaged, or is not a file of torch.save: ")
