"""Models as ONNX files, which predict as the models do."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.refusals import refusal
from train_manager import InputError
from train_manager.tools.export import OnnxModel, export_onnx, factorize, quantize

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
needs_onnx = pytest.mark.skipif(None in map(find_spec, PACKAGES), reason="make exports installs it")
needs_torchao = pytest.mark.skipif(find_spec("torchao") is None, reason="make exports installs it")


def assert_close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=0.0, atol=2e-5)


class Classifier(nn.Module):
    """Layers of the usual kinds, and a batch size that its forward reads."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5))
        self.hidden, self.head = nn.Linear(8 * 36, 128), nn.Linear(128, 10)

    def forward(self, image: Tensor) -> Tensor:
        torch.rand(1)  # the random state moves, and nothing depends on it
        features = self.trunk(image).view(image.shape[0], -1)
        return self.head(self.hidden(features).relu())  # type: ignore[no-any-return]


def classifier() -> Any:
    torch.manual_seed(0)
    model = Classifier()
    model(torch.randn(64, 1, 8, 8))  # in train mode, so that the norm has statistics
    return model


@needs_onnx
@pytest.mark.slow
@pytest.mark.parametrize("form", [lambda model: model, factorize, pytest.param(quantize, marks=needs_torchao)])
@pytest.mark.parametrize("size", [1, 7, 300])
def test_the_one_file_predicts_as_the_model_at_any_batch_size(
    tmp_path: Path, form: Callable[[nn.Module], nn.Module], size: int
) -> None:
    made, inputs = form(classifier()), torch.randn(size, 1, 8, 8)
    export_onnx(made, torch.randn(3, 1, 8, 8), tmp_path / "model.onnx")  # in train mode, but as in eval mode
    made.eval()

    with torch.no_grad():
        assert_close(OnnxModel(tmp_path / "model.onnx")(inputs), made(inputs))
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


@needs_onnx
@needs_torchao
@pytest.mark.slow
def test_int8_weights_are_int8_in_the_file_too(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    for name, made in {"model": model, "int8": quantize(model)}.items():
        export_onnx(made, torch.randn(3, 64), tmp_path / name)

    assert (tmp_path / "int8").stat().st_size / (tmp_path / "model").stat().st_size <= 0.32


@needs_onnx
def test_the_file_holds_no_path_and_no_source_of_the_program(tmp_path: Path) -> None:
    export_onnx(classifier(), torch.randn(1, 1, 8, 8), tmp_path / "model.onnx")
    content = (tmp_path / "model.onnx").read_bytes()

    assert b".py" not in content
    assert b"relu()" not in content


class Two(nn.Module):
    """Two inputs and two outputs, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 4), nn.Linear(5, 4)

    def forward(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:
        return {"sum": self.left(left) + self.right(right), "twice": 2 * right}


@needs_onnx
@pytest.mark.parametrize("kind", [dict, tuple])
def test_inputs_and_outputs_keep_their_names(tmp_path: Path, kind: type) -> None:
    pairs = {"left": torch.randn(7, 3), "right": torch.randn(7, 5)}
    inputs: Any = pairs if kind is dict else tuple(pairs.values())
    model = Two()
    export_onnx(model, inputs, tmp_path / "model.onnx")

    found = OnnxModel(tmp_path / "model.onnx")(inputs)

    assert isinstance(found, dict)
    with torch.no_grad():
        assert_close(found, model(**pairs))


@needs_onnx
def test_a_model_of_words_is_exported(tmp_path: Path) -> None:
    model, words = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 4)), torch.randint(50, (6, 9))
    export_onnx(model, words, tmp_path / "model.onnx")

    with torch.no_grad():
        assert_close(OnnxModel(tmp_path / "model.onnx")(words), model(words))


@needs_onnx
def test_the_model_and_the_random_state_stay_as_they_were(tmp_path: Path) -> None:
    model = classifier()
    model.trunk.eval()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    modes = [module.training for module in model.modules()]

    export_onnx(model, torch.randn(3, 1, 8, 8, generator=torch.Generator()), tmp_path / "model.onnx")

    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum().item() > 0 else -x


class Remembering(nn.Module):
    """Adds the number of its calls, which is a constant for the exporter."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.calls


@needs_onnx
def test_a_model_that_the_file_would_not_answer_like_is_refused(tmp_path: Path) -> None:
    assert refusal(lambda: export_onnx(Remembering(), torch.ones(2, 3), tmp_path / "model.onnx")) == (
        "Remembering as an ONNX file answers by 1 otherwise at a batch of 5\n"
        "  compute shapes from the inputs, as in x.flatten(1), or leave ONNX out"
    )
    assert [*tmp_path.iterdir()] == []


class LargeAndWrong(nn.Module):
    """Returns large numbers, and small ones that the file does not have right: they are drawn anew in each pass."""

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        return {"large": 1e6 * (1 + inputs), "wrong": nn.functional.dropout(inputs, 0.5, training=True)}


@needs_onnx
def test_a_large_output_does_not_hide_another_that_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="LargeAndWrong as an ONNX file answers by"):
        export_onnx(LargeAndWrong(), torch.rand(5, 64), tmp_path / "model.onnx")


class Masked(nn.Module):
    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        return {"twice": 2 * inputs, "mask": inputs > 0.5}


@needs_onnx
def test_an_output_of_truth_values_is_exported(tmp_path: Path) -> None:
    inputs = torch.rand(3, 8)
    export_onnx(Masked(), inputs, tmp_path / "model.onnx")
    outputs = OnnxModel(tmp_path / "model.onnx")(inputs)

    assert isinstance(outputs, dict)
    assert outputs["mask"].equal(inputs > 0.5)


@needs_onnx
def test_a_model_that_decides_by_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        export_onnx(Branching(), torch.ones(2, 3), tmp_path / "model.onnx")

    told = str(error.value).splitlines()
    assert told[0].startswith("Branching cannot be exported to ONNX: Could not guard on data-dependent expression")
    assert told[1:] == ["  compute without if and .item() on values, or leave ONNX out"]
    assert [*tmp_path.iterdir()] == []


@needs_onnx
def test_a_model_that_returns_a_tuple_is_refused(tmp_path: Path) -> None:
    assert refusal(lambda: export_onnx(nn.LSTM(4, 4), torch.ones(2, 3, 4), tmp_path / "model.onnx")) == (
        "export_onnx takes models that return a tensor or a dict of tensors, but got a tuple\n"
        "  export a module that returns the tensor alone"
    )


@needs_onnx
@pytest.mark.parametrize("inputs", [[1, 2], torch.tensor(1.0), (torch.ones(2), torch.ones(3)), torch.ones(0, 2)])
def test_inputs_without_a_row_for_each_example_are_refused(tmp_path: Path, inputs: Any) -> None:
    assert refusal(lambda: export_onnx(nn.Identity(), inputs, tmp_path / "model.onnx")) == (
        "export_onnx takes tensors with an example in each row as example_inputs\n"
        "  export_onnx(model, inputs, path) with the inputs of a batch"
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    for name in PACKAGES:
        if name == package or find_spec(name) is None:
            monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(ImportError, match=r'export_onnx needs onnx.*: pip install "train-manager\[onnx\]"$'):
        export_onnx(nn.Linear(2, 2), torch.ones(2, 2), tmp_path / "model.onnx")


PROGRAM = """
import torch
from torch import nn
from train_manager.tools.export import OnnxModel, export_onnx, quantize

model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
export_onnx(quantize(model), torch.ones(2, 8), "model.onnx")
quantize(model)(torch.ones(2, 8)), OnnxModel("model.onnx")(torch.ones(2, 8))
"""


@needs_onnx
@needs_torchao
@pytest.mark.slow
def test_nothing_of_what_the_packages_say_reaches_the_user(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert (done.stdout, done.stderr) == ("", "")
