"""A trained model is handed over in several forms, with a report."""

from __future__ import annotations

import copy
import dataclasses
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.fork_server import ForkServer
from tests.support.refusals import refusal
from train_manager import InputError
from train_manager.learner import deploy_model, deployment, load_model
from train_manager.learner.deployment import EXPORTS, Exported, require_exports
from train_manager.learner.evaluation import Evaluation, EvaluationResult
from train_manager.learner.model import FileModel
from train_manager.tools.export import OnnxModel, load_factorized, quantize

NEEDED = ("torchao", "onnx", "onnxscript", "onnxruntime")
needs_packages = pytest.mark.skipif(None in map(find_spec, NEEDED), reason="make exports installs them")


def network() -> FileModel:
    torch.manual_seed(0)
    layers = [{"use": "Linear", "out_features": 256}, {"use": "BatchNorm1d"}, {"use": "ReLU"}, {"use": "Dropout"}]
    layers.append({"use": "Linear", "out_features": 10})
    return load_model({"inputs": {"point": [64]}, "module": {"digit": {"from": "point", "layers": layers}}})


def deploy(model: FileModel, result: EvaluationResult, config: dict[str, Any]) -> list[Exported]:
    return deploy_model(Evaluation(test=result), model, {**config, "folder": str(config["folder"])})


def accuracy(prediction: Tensor, truth: Tensor) -> Tensor:
    return prediction.argmax(dim=1) == truth


def mean_margin(prediction: Tensor, truth: Tensor) -> float:
    return float(prediction.gather(1, truth[:, None]).mean())


def evaluated(model: FileModel, examples: int = 600) -> EvaluationResult:
    inputs, truth = torch.randn(examples, 64), torch.arange(examples) % 10
    with torch.no_grad():
        predictions = copy.deepcopy(model).eval()(inputs)
    functions = [accuracy, mean_margin]
    metrics = {one.__name__: float(torch.as_tensor(one(predictions, truth)).double().mean()) for one in functions}
    return EvaluationResult(predictions, truth, inputs, {"loss": 2.5, **metrics}, functions, "EMA")


def test_the_weights_are_written_and_load_without_code(tmp_path: Path) -> None:
    model = network()
    deploy(model, evaluated(model), {"folder": tmp_path / "digits"})

    state = torch.load(tmp_path / "digits" / "model.pt", weights_only=True)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert sorted(file.name for file in (tmp_path / "digits").iterdir()) == ["model.pt", "report.md"]


def test_the_report_has_the_data_the_weights_and_a_row_for_each_form(tmp_path: Path) -> None:
    model = network()
    result = evaluated(model)
    whole, low = deploy(model, result, {"folder": str(tmp_path / "digits"), "exports": ["low_rank"]})
    lines = (tmp_path / "digits" / "report.md").read_text().splitlines()

    assert lines[0] == "# digits"
    assert lines[2] == "Evaluated on 600 examples of 64, with the moving average of the weights (EMA)."
    assert lines[4] == "| file | bytes | of model.pt | largest difference | loss | accuracy | mean_margin |"
    assert lines[5] == "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    metrics = f"2.5000 | {result.metrics['accuracy']:.4f} | {result.metrics['mean_margin']:.4f}"
    assert lines[6] == f"| model.pt | {whole.bytes:,} | 1.00 | {whole.difference:.1e} | {metrics} |"
    # The evaluation has no function for its loss, so the export has none.
    metrics = f"{low.metrics['accuracy']:.4f} | {low.metrics['mean_margin']:.4f}"
    assert (
        lines[7]
        == f"| low_rank.pt | {low.bytes:,} | {low.bytes / whole.bytes:.2f} | {low.difference:.1e} |  | {metrics} |"
    )
    assert 'load_factorized(model, torch.load("low_rank.pt", weights_only=True))' in lines


def test_difference_and_metrics_are_those_of_the_outputs_on_all_examples(tmp_path: Path) -> None:
    model = network()
    result = evaluated(model)
    whole, low = deploy(model, result, {"folder": tmp_path / "digits", "exports": ["low_rank"], "low_rank": 0.3})
    loaded = load_factorized(network(), torch.load(tmp_path / "digits" / "low_rank.pt", weights_only=True)).eval()
    with torch.no_grad():
        outputs = loaded(result.inputs)

    assert low.difference == pytest.approx(float((outputs - result.predictions).abs().max()), rel=1e-4)
    assert low.metrics == pytest.approx(
        {
            "accuracy": float(accuracy(outputs, result.truth).double().mean()),
            "mean_margin": mean_margin(outputs, result.truth),
        },
        rel=1e-4,
    )
    assert whole.difference < 1e-5
    assert whole.metrics == pytest.approx(dict(result.metrics))


@needs_packages
@pytest.mark.slow
def test_all_exports_are_read_as_the_report_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    result = evaluated(model)
    exported = {one.file: one for one in deploy(model, result, {"folder": tmp_path / "digits", "exports": [*EXPORTS]})}
    monkeypatch.chdir(tmp_path / "digits")
    report = Path("report.md").read_text()
    code = report.partition("```python\n")[2].partition("```")[0].splitlines()

    assert [*exported] == ["model.pt", "model.onnx", "int8.pt", "int8.onnx", "low_rank.pt", "low_rank.onnx"]
    differences = []
    for line in code:
        names = {"torch": torch, "quantize": quantize, "load_factorized": load_factorized, "OnnxModel": OnnxModel}
        fresh = network().eval()
        given = {**names, "model": fresh, "inputs": result.inputs}
        found: Any = eval(line, given) if "quantize" not in line else _loaded_int8(line, given)
        found = found if isinstance(found, nn.Module | Tensor) else fresh
        with torch.no_grad():
            outputs = found.eval()(result.inputs) if isinstance(found, nn.Module) else found
        differences.append(float((outputs - result.predictions).abs().max()))
    assert differences == pytest.approx([one.difference for one in exported.values()], abs=2e-5)
    # The ONNX files are as far from the model as the forms that they hold, to 2e-5.
    for name in ("int8", "low_rank"):
        assert exported[f"{name}.onnx"].difference == pytest.approx(exported[f"{name}.pt"].difference, abs=2e-5)
        assert exported[f"{name}.onnx"].bytes < 0.6 * exported["model.onnx"].bytes


def _loaded_int8(line: str, given: dict[str, Any]) -> nn.Module:
    """Run the line, which makes the int8 model and loads its weights, and return the model."""
    made: list[nn.Module] = []

    def remembering(model: nn.Module) -> nn.Module:
        made.append(quantize(model))
        return made[0]

    eval(line, {**given, "quantize": remembering})
    return made[0]


def test_the_model_and_the_random_state_stay_as_they_were(tmp_path: Path) -> None:
    model = network()
    model.digit[1].eval()  # type: ignore[index,union-attr]
    result, before, state = evaluated(model), copy.deepcopy(model.state_dict()), torch.get_rng_state()
    modes = [module.training for module in model.modules()]
    deploy(model, result, {"folder": tmp_path / "digits", "exports": ["low_rank"]})

    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


def several() -> FileModel:
    """Two inputs, and two outputs."""
    linear = {"use": "Linear", "out_features": 32}
    modules = {"one": {"from": "left", **linear}, "other": {"from": "right", **linear}}
    modules["sum"] = {"from": ["one", "other"], "use": "Sum"}
    return load_model({"inputs": {"left": [32], "right": [32]}, "module": modules, "outputs": ["sum", "one"]})


def test_a_model_with_several_inputs_and_outputs_is_deployed(tmp_path: Path) -> None:
    model = several()
    inputs = {"left": torch.randn(300, 32), "right": torch.randn(300, 32)}
    with torch.no_grad():
        result = EvaluationResult(model(inputs)["sum"], torch.zeros(300), inputs, {"size": 1.0}, module="sum")
    whole, _ = deploy(model, result, {"folder": tmp_path / "digits", "exports": ["low_rank"]})

    assert whole.difference < 1e-5
    assert "on 300 examples of 32, 32, with the trained weights." in (tmp_path / "digits" / "report.md").read_text()


def test_the_evaluation_of_another_model_is_refused(tmp_path: Path) -> None:
    model = network()
    result = dataclasses.replace(evaluated(model), predictions=torch.zeros(600, 3))
    with pytest.raises(InputError) as error:
        deploy(model, result, {"folder": tmp_path / "digits"})

    what = "the model predicts 600x10, but its evaluation has 600x3"
    assert str(error.value) == f"{what}\n  give the evaluation of this model"
    assert [*tmp_path.iterdir()] == []


def test_nothing_is_left_of_a_deployment_that_fails(tmp_path: Path) -> None:
    model = network()
    with pytest.raises(InputError, match="cannot leave"):
        deploy(model, evaluated(model), {"folder": tmp_path / "digits", "exports": ["low_rank"], "low_rank": 0.001})

    assert [*tmp_path.iterdir()] == []


def is_killed_as_it_reports() -> None:
    model = network()
    vars(deployment)["report"] = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    deploy(model, evaluated(model), {"folder": "digits", "exports": ["low_rank"]})


@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
def test_a_kill_leaves_no_folder_of_this_name_and_the_next_deployment_removes_what_is_hidden(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    assert fork_server.run(is_killed_as_it_reports, cwd=tmp_path).code == -signal.SIGKILL
    assert not (tmp_path / "digits").exists()
    assert len([*tmp_path.glob(".tmp-digits-*/*.pt")]) == 2

    (tmp_path / ".tmp-others-01234567").mkdir()  # of another deployment, which may go on
    model = network()
    deploy(model, evaluated(model), {"folder": tmp_path / "digits"})

    assert sorted(path.name for path in tmp_path.iterdir()) == [".tmp-others-01234567", "digits"]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"folder": "d", "export": []}, "deploy has the unknown name 'export'\n  did you mean 'exports'?"),
        (
            {"folder": "d", "exports": ["fp8"]},
            "exports has the unknown name 'fp8'\n  the names are onnx, int8, int8_onnx, low_rank, low_rank_onnx",
        ),
        ({"folder": "d", "exports": "onnx"}, "exports must be a list of names, but is 'onnx'"),
        ({"folder": "d", "exports": 3}, "exports must be a list of names, but is 3"),
        (
            {"exports": []},
            "deploy needs the path of a folder, but was given None\n"
            '  give one that is not there yet: folder = "deployed/digits"',
        ),
        ({"folder": "d", "low_rank": 1.5}, "low_rank must be a number above 0 and below 1, but is 1.5"),
        (
            {"folder": "taken"},
            "taken is there already, and nothing is overwritten\n  give another folder, or move this one away",
        ),
    ],
)
def test_a_config_that_cannot_be_followed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").mkdir()
    assert refusal(lambda: require_exports(config)) == told


def test_all_extras_that_are_missing_are_named_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torchao.quantization", "onnx"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError) as error:
        require_exports({"folder": tmp_path / "digits", "exports": ["int8_onnx"]})

    onnx, torchao = str(error.value).splitlines()
    assert onnx.startswith("deploy needs onnx (")
    assert onnx.endswith('): pip install "train-manager[onnx]"')
    assert torchao.startswith("deploy needs torchao (")
    assert torchao.endswith('): pip install "train-manager[quantize]"')
    require_exports({"folder": tmp_path / "digits", "exports": ["low_rank"]})  # needs none
