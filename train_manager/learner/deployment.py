"""A folder with a trained model in several forms, and a report that compares them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from train_manager._version import __version__
from train_manager.data.random_state import preserve_random_state
from train_manager.files.atomic import new_folder, require_new
from train_manager.files.leftovers import remove_leftovers_of
from train_manager.learner.description import Description
from train_manager.learner.evaluation import Evaluation, EvaluationResult, measured
from train_manager.learner.model import FileModel
from train_manager.telling.errors import InputError, did_you_mean, near
from train_manager.telling.showing import short
from train_manager.tools.export import (
    OnnxModel,
    export_onnx,
    factorize,
    import_extra,
    largest_difference,
    quantize,
    require_onnx,
)
from train_manager.validation import require_number

EXPORTS: Final = ("onnx", "int8", "int8_onnx", "low_rank", "low_rank_onnx")
KEYS: Final = {
    "folder": "the new folder",
    "exports": f"any of {', '.join(EXPORTS)}",
    "low_rank": "the share of the parameters that low rank leaves; 0.5 if it is left out",
}
"""The keys of a deployment."""
SHARE: Final = 0.5  # of the parameters that low rank leaves
BATCH: Final = 256  # examples that are predicted at once

# How each file is read, for the report.
READ: Final = {
    "model.pt": 'model.load_state_dict(torch.load("model.pt", weights_only=True))',
    "int8.pt": '(small := quantize(model)).load_state_dict(torch.load("int8.pt", weights_only=True), assign=True)',
    "low_rank.pt": 'load_factorized(model, torch.load("low_rank.pt", weights_only=True))',
    "model.onnx": 'OnnxModel("model.onnx")(inputs)',
    "int8.onnx": 'OnnxModel("int8.onnx")(inputs)',
    "low_rank.onnx": 'OnnxModel("low_rank.onnx")(inputs)',
}


@final
@dataclass(frozen=True, slots=True)
class Exported:
    """One form of the model.

    Attributes:
        file: its name.
        bytes: its size.
        difference: the largest difference of its outputs from those of the model; of the model itself, from the
            predictions of the evaluation.
        metrics: every metric of the evaluation, on the same examples.
    """

    file: str
    bytes: int
    difference: float
    metrics: Mapping[str, float]


def deploy_model(
    evaluation: Evaluation, model: FileModel, config: str | Path | Mapping[str, Any] | None = None
) -> list[Exported]:
    """Hand a trained model over: a new folder with its report and exports; the run of its learner ends.

    The weights are always written, as ``model.pt``: those that the evaluation used, as an average. Each form of the
    model predicts the examples of the evaluation, and is measured by the same functions. The folder is there as a whole
    or not at all, also where the process is killed: what is then left is hidden, and removed by the next deployment of
    this name. Convolutions are not made int8.

    Args:
        evaluation: the result of ``eval_model``; its first part is what the exports are measured on.
        model: the model that was evaluated; stays as it is.
        config: the path of a TOML file, or a dict: ``folder``, which must not be there; ``exports``, any of "onnx",
            "int8", "int8_onnx", "low_rank" and "low_rank_onnx"; and ``low_rank``, the share of the parameters that is
            left, 0.5 if it is not given. None for ``deployment`` of the learner's options, where mistakes and missing
            packages are found before the training.

    Returns:
        The model and its exports, in the order of ``exports``, as in the report.

    Raises:
        InputError, ImportError: as ``require_exports``, ``export_onnx``, ``quantize`` and ``factorize`` do, or there is
            no evaluation, or it is that of another model.
    """
    if not isinstance(evaluation, Evaluation) or not evaluation:
        what = f"deploy_model needs an evaluation, but was given {short(evaluation)}"
        raise InputError(what, name="evaluation", cure="evaluate it first: eval_model(dataloader, model, metrics)")
    learner = model.learner
    if config is None and learner is not None:
        config = learner.options.deployment
    plan = Description.read(config, "the deployment").tree
    require_exports(plan)
    with nullcontext() if learner is None else learner.weights_of_evaluation():
        exported = _deploy(model, next(iter(evaluation.values())), plan)
    if learner is not None:
        learner.close()
    return exported


def _deploy(model: FileModel, result: EvaluationResult, plan: Mapping[str, Any]) -> list[Exported]:
    path, exports = Path(plan["folder"]), list(dict.fromkeys(plan.get("exports", ())))
    remove_leftovers_of(path)
    with preserve_random_state(), torch.no_grad(), new_folder(path) as folder:
        plain = copy.deepcopy(model).cpu().eval()
        forms: dict[str, nn.Module] = {"model": plain}
        if any(name.startswith("int8") for name in exports):
            forms["int8"] = quantize(plain)
        if any(name.startswith("low_rank") for name in exports):
            forms["low_rank"] = factorize(plain, plan.get("low_rank", SHARE))
        expected = _outputs(plain, result.inputs)
        exported = [_compare_model(_write(plain, folder / "model.pt", result.inputs), result, expected)]
        for name in exports:
            form, file = _form_of(name)
            written = _write(forms[form], folder / file, result.inputs)
            outputs = _outputs(OnnxModel(written) if written.suffix == ".onnx" else forms[form], result.inputs)
            difference = largest_difference(_tensors(expected), _tensors(outputs))
            exported.append(_exported(written, difference, _metrics(result, _predicted(result, outputs))))
        (folder / "report.md").write_text(report(path.name, result, exported), encoding="utf-8")
    return exported


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


# ---- forms of the model, compared on the examples of the evaluation ------------------------------------------------


def _compare_model(file: Path, result: EvaluationResult, outputs: list[Any]) -> Exported:
    """Return the measures of the model itself, which must predict as in the evaluation."""
    predicted, predictions = _predicted(result, outputs), result.predictions.cpu()
    if predicted.shape != predictions.shape:
        what = f"the model predicts {_shape(predicted)}, but its evaluation has {_shape(predictions)}"
        raise InputError(what, name="evaluation", cure="give the evaluation of this model")
    metrics = {**result.metrics, **_metrics(result, predicted)}
    return _exported(file, largest_difference([predictions], [predicted]), metrics)


def _exported(file: Path, difference: float, metrics: Mapping[str, float]) -> Exported:
    return Exported(file.name, file.stat().st_size, difference, metrics)


def _metrics(result: EvaluationResult, predicted: Tensor) -> dict[str, float]:
    return measured(result.functions, predicted, result.truth.cpu())


def _predicted(result: EvaluationResult, outputs: list[Any]) -> Tensor:
    return torch.cat([result.predict(one) for one in outputs])


def _outputs(form: nn.Module | OnnxModel, inputs: Any) -> list[Any]:
    """Return what a form gives for each batch of the inputs."""
    return [form(batch) for batch in _batches(inputs)]


def _batches(inputs: Any) -> Iterator[Any]:
    if isinstance(inputs, Tensor):
        yield from inputs.cpu().split(BATCH)
    else:
        parts = [column.cpu().split(BATCH) for column in inputs.values()]
        yield from (dict(zip(inputs, batch, strict=True)) for batch in zip(*parts, strict=True))


def _tensors(outputs: list[Any]) -> list[Tensor]:
    return [tensor for one in outputs for tensor in _columns(one)]


def _columns(value: Any) -> list[Tensor]:
    """Return the tensors of inputs or outputs: one, or several by name."""
    return [value] if isinstance(value, Tensor) else list(value.values())


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape))


# ---- the report ----------------------------------------------------------------------------------------------------


def report(title: str, result: EvaluationResult, exported: Sequence[Exported]) -> str:
    """Return the report as Markdown: a table with a row for each form, and how each file is read."""
    shapes = ", ".join("x".join(map(str, leaf.shape[1:])) or "1" for leaf in _columns(result.inputs))
    metrics = [*dict.fromkeys(name for one in exported for name in one.metrics)]
    head = ["file", "bytes", "of model.pt", "largest difference", *metrics]
    rows = [_row(one, exported[0].bytes, metrics) for one in exported]
    lines = [
        f"# {title}",
        f"Evaluated on {len(result.truth):,} examples of {shapes}, with the {_weights(result)}.",
        "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] + ["---:"] * (len(head) - 1), *rows)),
        "The difference is that of outputs from the model's on these examples; of model.pt, from the evaluation's.",
        "```python\n" + "\n".join(READ[one.file] for one in exported) + "\n```",
        f"Written by Train Manager {__version__} with torch {torch.__version__}.",
    ]
    return "\n\n".join(lines) + "\n"


def _weights(result: EvaluationResult) -> str:
    return "moving average of the weights (EMA)" if result.weights == "EMA" else "trained weights"


def _row(one: Exported, whole: int, metrics: Sequence[str]) -> list[str]:
    numbers = [f"{one.metrics[name]:.4f}" if name in one.metrics else "" for name in metrics]
    return [one.file, f"{one.bytes:,}", f"{one.bytes / whole:.2f}", f"{one.difference:.1e}", *numbers]


# ---- the config ----------------------------------------------------------------------------------------------------


def require_exports(config: Mapping[str, Any]) -> None:
    """Refuse a config that ``deploy`` could not follow, before a training has taken hours.

    >>> require_exports({"folder": "deployed/digits", "exports": ["onxx"]})
    Traceback (most recent call last):
    train_manager.errors.InputError: exports has the unknown name 'onxx'
      did you mean 'onnx'?

    Raises:
        InputError: a key or an export is unknown, the folder is missing or there already, or ``low_rank`` is not a
            share.
        ImportError: an export needs packages that are not installed; names all of them.
    """
    _require_known(config, tuple(KEYS), "deploy")
    exports = config.get("exports", ())
    if not isinstance(exports, list | tuple) or not all(isinstance(name, str) for name in exports):
        raise InputError(f"exports must be a list of names, but is {exports!r:.60}", name="exports")
    _require_known(exports, EXPORTS, "exports")
    folder = config.get("folder")
    if not isinstance(folder, str | Path) or not str(folder):
        what = f"deploy needs the path of a folder, but was given {folder!r:.60}"
        raise InputError(what, name="folder", cure='give one that is not there yet: folder = "deployed/digits"')
    require_new(Path(folder))
    require_number(config.get("low_rank", SHARE), "low_rank", above=0.0, below=1.0)
    _require_packages(exports)


def _require_known(names: Mapping[str, Any] | Sequence[str], known: Sequence[str], of: str) -> None:
    wrong = next((name for name in names if name not in known), None)
    if wrong is not None:
        cure = did_you_mean(near(wrong, known)) or f"the names are {', '.join(known)}"
        raise InputError(f"{of} has the unknown name {wrong!r}", name=wrong, cure=cure)


def _require_packages(exports: Sequence[str]) -> None:
    needed: dict[str, Callable[[], object]] = {
        "onnx": lambda: require_onnx("deploy"),
        "int8": lambda: import_extra("torchao.quantization", "quantize", "deploy"),
    }
    missing = []
    for part, require in needed.items():
        if any(part in name.split("_") for name in exports):
            try:
                require()
            except ImportError as error:
                missing.append(str(error))
    if missing:
        raise ImportError("\n".join(missing))
