"""A folder with a trained model in several forms, and a report that compares them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from train_manager.data.random_state import preserve_random_state
from train_manager.diagnosis.batch_leaves import leaves_of, put_together
from train_manager.files.atomic import new_folder
from train_manager.learner.description import Description
from train_manager.learner.evaluation import Evaluation
from train_manager.learner.evaluation_result import EvaluationResult, measured
from train_manager.learner.exports import SHARE, require_exports
from train_manager.learner.model import FileModel
from train_manager.learner.report_card import Exported, report
from train_manager.loop.model_calls import ModelCall
from train_manager.telling.errors import InputError
from train_manager.telling.showing import short
from train_manager.tools.export_onnx import OnnxModel, export_onnx, largest_difference
from train_manager.tools.factorize import factorize
from train_manager.tools.quantize import quantize

BATCH: Final = 256  # examples that are predicted at once
GIVE_PREDICT: Final = 'give what makes the predictions of the outputs: predict=lambda outputs: outputs["digit"]'


def deploy(
    model: nn.Module,
    result: EvaluationResult,
    config: Mapping[str, Any],
    *,
    predict: Callable[[Any], Tensor] = lambda outputs: outputs,
) -> list[Exported]:
    """Write a trained model in several forms into a new folder, with a report that compares them.

    >>> import tempfile
    >>> model, inputs = nn.Linear(64, 10), torch.rand(8, 64)
    >>> result = EvaluationResult(model(inputs).detach(), torch.zeros(8), inputs, metrics={"loss": 2.3})
    >>> folder = Path(tempfile.mkdtemp()) / "digits"
    >>> exported = deploy(model, result, {"folder": folder, "exports": ["low_rank"]})
    >>> sorted(file.name for file in folder.iterdir())
    ['low_rank.pt', 'model.pt', 'report.md']

    The weights are always written, as ``model.pt``. The folder is there as a whole or not at all, also where the
    process is killed. Convolutions are not made int8.

    Args:
        model: with the weights that the evaluation used; stays as it is.
        result: of the evaluation. Each form predicts the same examples, and is measured by the same functions.
        config: ``folder``, which must not be there; ``exports``, any of "onnx", "int8", "int8_onnx", "low_rank" and
            "low_rank_onnx"; and ``low_rank``, the share of the parameters that is left, 0.5 if it is not given.
        predict: what makes the predictions of the evaluation of the model's outputs.

    Returns:
        The model and its exports, in the order of ``exports``, as in the report.

    Raises:
        InputError, ImportError: as ``require_exports``, ``export_onnx``, ``quantize`` and ``factorize`` do.
    """
    require_exports(config)
    exports = list(dict.fromkeys(config.get("exports", ())))
    with preserve_random_state(), torch.no_grad(), new_folder(Path(config["folder"])) as folder:
        plain = copy.deepcopy(model).cpu().eval()
        forms: dict[str, nn.Module] = {"model": plain}
        if any(name.startswith("int8") for name in exports):
            forms["int8"] = quantize(plain)
        if any(name.startswith("low_rank") for name in exports):
            forms["low_rank"] = factorize(plain, config.get("low_rank", SHARE))
        compare = _Comparison(plain, result, predict)
        exported = [compare.model(_write(plain, folder / "model.pt", result.inputs))]
        for name in exports:
            form, file = _form_of(name)
            exported.append(compare.export(forms[form], _write(forms[form], folder / file, result.inputs)))
        text = report(Path(config["folder"]).name, result, exported)
        (folder / "report.md").write_text(text, encoding="utf-8")
    return exported


@final
class _Comparison:
    """Measures forms of a model against it, on the examples of an evaluation."""

    def __init__(self, plain: nn.Module, result: EvaluationResult, predict: Callable[[Any], Tensor]) -> None:
        self.result, self.predict = result, predict
        self.call = ModelCall(plain)
        self.expected = self._outputs(plain)

    def model(self, file: Path) -> Exported:
        """Return the measures of the model itself, which must predict as in the evaluation."""
        predicted, predictions = self._predicted(self.expected), self.result.predictions.cpu()
        if predicted.shape != predictions.shape:
            what = f"the model predicts {_shape(predicted)}, but its evaluation has {_shape(predictions)}"
            raise InputError(what, name="predict", cure=GIVE_PREDICT)
        metrics = {**self.result.metrics, **self._metrics(predicted)}
        return self._exported(file, largest_difference([predictions], [predicted]), metrics)

    def export(self, form: nn.Module, file: Path) -> Exported:
        """Return the measures of another form of the model, or of an ONNX file."""
        outputs = self._outputs(OnnxModel(file) if file.suffix == ".onnx" else form)
        difference = largest_difference(_tensors(self.expected), _tensors(outputs))
        return self._exported(file, difference, self._metrics(self._predicted(outputs)))

    def _exported(self, file: Path, difference: float, metrics: dict[str, float]) -> Exported:
        return Exported(file.name, file.stat().st_size, difference, metrics)

    def _metrics(self, predicted: Tensor) -> dict[str, float]:
        truth = self.result.truth.cpu()
        return measured(self.result.functions, predicted, truth)

    def _predicted(self, outputs: Sequence[Any]) -> Tensor:
        predicted = [self.predict(one) for one in outputs]
        if not all(isinstance(one, Tensor) for one in predicted):
            what = f"deploy needs predictions that are a tensor, but the model returns a {type(predicted[0]).__name__}"
            raise InputError(what, name="predict", cure=GIVE_PREDICT)
        return torch.cat(predicted)

    def _outputs(self, form: nn.Module | OnnxModel) -> list[Any]:
        batches = _batches(self.result.inputs)
        return [form(batch) if isinstance(form, OnnxModel) else self.call(form, batch) for batch in batches]


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for _, leaf in leaves_of(value)]


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape))


def _batches(inputs: Any) -> Iterator[Any]:
    leaves = {path: leaf.cpu() for path, leaf in leaves_of(inputs)}
    for start in range(0, len(next(iter(leaves.values()))), BATCH):
        yield put_together(inputs, {path: leaf[start : start + BATCH] for path, leaf in leaves.items()})


def _form_of(export: str) -> tuple[str, str]:
    """Return the form of the model that an export writes, and its file."""
    form = export.removesuffix("onnx").removesuffix("_") or "model"
    return form, f"{form}.onnx" if export.endswith("onnx") else f"{form}.pt"


def _write(form: nn.Module, file: Path, inputs: Any) -> Path:
    if file.suffix == ".onnx":
        export_onnx(form, inputs, file)
    else:
        torch.save(form.state_dict(), file)
    return file


def deploy_model(
    evaluation: Evaluation, model: FileModel, config: str | Path | Mapping[str, Any] | None = None
) -> list[Exported]:
    """Hand a trained model over: a new folder with its report and exports; the run of its learner ends.

    Args:
        evaluation: the result of ``eval_model``; its first part is what the exports are measured on.
        model: the model that was evaluated.
        config: the path of a TOML file, or a dict, as ``deploy`` takes it; None for ``deployment`` of the learner's
            options, where mistakes and missing packages are found before the training.

    Raises:
        InputError, ImportError: as ``deploy`` does, or there is no evaluation.
    """
    if not isinstance(evaluation, Evaluation) or not evaluation:
        what = f"deploy_model needs an evaluation, but was given {short(evaluation)}"
        raise InputError(what, name="evaluation", cure="evaluate it first: eval_model(dataloader, model, metrics)")
    result = next(iter(evaluation.values()))
    learner = model.learner
    if config is None and learner is not None:
        config = learner.options.deployment
    plan = Description.read(config, "the deployment").tree
    with nullcontext() if learner is None else learner.weights_of_evaluation():
        exported = deploy(model, result, plan, predict=result.predict)
    if learner is not None:
        learner.close()
    return exported
