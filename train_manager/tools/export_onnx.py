"""Models as ONNX files, and these files called as the models are."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from train_manager.checks.batch_leaves import leaves_of, name_of, put_together
from train_manager.data.random_state import preserve_random_state
from train_manager.files.atomic import replace_file
from train_manager.loop.model_calls import ModelCall
from train_manager.telling.errors import InputError
from train_manager.tools.extras import import_extra, quiet

TRACED: Final = 2  # examples that the exporter sees; it takes a size of 1 for a constant
TRIED: Final = (1, 5)  # examples in the batches with which the file is compared to the model
TOLERANCE: Final = 1e-3  # of the largest number of an output; float32 leaves differences near 1e-6
FOLDED: Final = 64  # numbers in a constant that the exporter may compute with; weights, int8 ones too, have more


def export_onnx(model: nn.Module, example_inputs: Any, path: str | os.PathLike[str]) -> None:
    """Write a model as one ONNX file, which takes batches of any size::

        export_onnx(model, inputs, "model.onnx")
        outputs = OnnxModel("model.onnx")(inputs)

    The file holds the weights, and no path or source of the program. Its inputs and outputs have the names of the
    dicts that the model takes and returns, else ``inputs`` and ``outputs``. Models that ``quantize`` and ``factorize``
    return are exported too; then the weights in the file are int8, or the factors. The file is compared with the
    model, in batches of 1 and 5 examples, before it is written.

    Args:
        model: exported as in eval mode; stays as it is.
        example_inputs: inputs as the model is called with: a tensor, or tensors in a tuple or a dict, each with the
            examples as its first dimension.
        path: of the file; an older one is replaced.

    Raises:
        ImportError: onnx, onnxscript or onnxruntime is not installed: ``pip install "train-manager[onnx]"``.
        InputError: the inputs are not such tensors, the model returns something else than a tensor or a dict of
            tensors, the exporter cannot follow it, or the file answers otherwise than the model.
    """
    require_onnx("export_onnx")
    _require_rows(example_inputs)
    # A copy: the exporter writes to the modules, and works on the CPU.
    with preserve_random_state():
        traced = _Flat(copy.deepcopy(model).cpu().eval(), _rows(example_inputs, TRACED))
        content = _export(traced)
        _compare(traced, OnnxModel(content), example_inputs)
    replace_file(Path(path), content)


def require_onnx(asked_by: str) -> None:
    """Import the packages of the extra ``onnx``.

    Raises:
        ImportError: one is missing.
    """
    for name in ("onnx", "onnxscript", "onnxruntime"):
        import_extra(name, "onnx", asked_by)


@final
class OnnxModel:
    """An ONNX file of ``export_onnx``, called with the inputs of its model by onnxruntime on the CPU.

    Args:
        file: its path or its content.

    Raises:
        ImportError: onnxruntime is not installed: ``pip install "train-manager[onnx]"``.
    """

    def __init__(self, file: str | os.PathLike[str] | bytes) -> None:
        runtime = import_extra("onnxruntime", "onnx", "OnnxModel")
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # errors: its warnings are about the graph, which is not the user's
        options.intra_op_num_threads = torch.get_num_threads()
        file = file if isinstance(file, bytes) else os.fspath(file)
        self._session = runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self._inputs = [one.name for one in self._session.get_inputs()]
        self._outputs = [one.name for one in self._session.get_outputs()]

    def __call__(self, inputs: Any) -> Tensor | dict[str, Tensor]:
        """Return what the model returns: a tensor, or a dict of tensors."""
        given = {name: leaf.detach().cpu().numpy() for name, leaf in _named(inputs, "inputs").items()}
        arrays = self._session.run(self._outputs, {name: given[name] for name in self._inputs})
        outputs = {name: torch.from_numpy(array) for name, array in zip(self._outputs, arrays, strict=True)}
        return outputs["outputs"] if [*outputs] == ["outputs"] else outputs


@final
class _Flat(nn.Module):
    """A model that takes and returns lists of tensors, as a graph does."""

    def __init__(self, model: nn.Module, inputs: Any) -> None:
        super().__init__()
        self.model, self.inputs, self.call = model, inputs, ModelCall(model)
        with torch.no_grad():
            self.names = [*_named(_checked(self(_tensors(inputs), flat=False)), "outputs")]

    def forward(self, tensors: list[Tensor], flat: bool = True) -> Any:
        paths = [path for path, _ in leaves_of(self.inputs)]
        outputs = self.call(self.model, put_together(self.inputs, dict(zip(paths, tensors, strict=True))))
        return _tensors(outputs) if flat else outputs


def _export(traced: _Flat) -> bytes:
    optimizer = import_extra("onnxscript.optimizer", "onnx", "export_onnx")
    tensors = _tensors(traced.inputs)
    try:
        with quiet(), torch.no_grad():
            program = torch.onnx.export(
                traced.eval(),
                (tensors,),
                dynamo=True,
                dynamic_shapes=([{0: torch.export.Dim.DYNAMIC} for _ in tensors],),
                input_names=[*_named(traced.inputs, "inputs")],
                output_names=traced.names,
                optimize=False,
                verbose=False,
            )
            assert program is not None
            # By itself the exporter would compute float weights out of small int8 ones, and write these.
            optimizer.optimize_ir(program.model, input_size_limit=FOLDED)
    except torch.onnx.OnnxExporterError as error:
        kind, cause = type(traced.model).__name__, str(error.__cause__ or error).strip().partition("\n")[0]
        what = f"{kind} cannot be exported to ONNX: {cause}"
        raise InputError(
            what, name="model", cure="compute without if and .item() on values, or leave ONNX out"
        ) from error
    # The exporter notes the stack of the program, with its paths and lines, at each node.
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()
    return bytes(program.model_proto.SerializeToString())


def _compare(traced: _Flat, exported: OnnxModel, inputs: Any) -> None:
    for number in TRIED:
        rows = _rows(inputs, number)
        with torch.no_grad():
            expected = traced(_tensors(rows))
        try:
            found = _tensors(exported(rows))
            differences = [largest_difference([one], [other]) for one, other in zip(expected, found, strict=True)]
        except Exception as error:  # onnxruntime has errors of its own for each thing that a graph cannot do
            raise _other_answer(traced, f"fails at a batch of {number}") from error
        for one, difference in zip(expected, differences, strict=True):
            if not difference <= TOLERANCE * max(1.0, float(one.double().abs().max())):
                raise _other_answer(traced, f"answers by {difference:.2g} otherwise at a batch of {number}")


def _other_answer(traced: _Flat, what: str) -> InputError:
    cure = "compute shapes from the inputs, as in x.flatten(1), or leave ONNX out"
    return InputError(f"{type(traced.model).__name__} as an ONNX file {what}", name="model", cure=cure)


def largest_difference(expected: list[Tensor], found: list[Tensor]) -> float:
    """Return the largest difference of two numbers at the same place.

    >>> largest_difference([torch.tensor([1.0, 2.0])], [torch.tensor([1.0, 2.5])])
    0.5

    Equal infinities do not differ: a model may mask its outputs with -inf.

    >>> largest_difference([torch.tensor([1.0, -torch.inf])], [torch.tensor([1.0, -torch.inf])])
    0.0
    """
    pairs = zip(expected, found, strict=True)
    # max() of Python would drop a nan.
    return float(torch.stack([_differences(one.double(), other.double()).max() for one, other in pairs]).max())


def _differences(one: Tensor, other: Tensor) -> Tensor:
    return (one - other).abs().where(one != other, 0.0)


def _named(value: Any, alone: str) -> dict[str, Tensor]:
    return {name_of(path) if path else alone: leaf for path, leaf in leaves_of(value)}


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for _, leaf in leaves_of(value)]


def _rows(inputs: Any, number: int) -> Any:
    """Return a batch of the first examples, from the first again where there are too few."""
    leaves = {path: leaf.detach().cpu() for path, leaf in leaves_of(inputs)}
    return put_together(inputs, {path: leaf[torch.arange(number) % len(leaf)] for path, leaf in leaves.items()})


def _require_rows(inputs: Any) -> None:
    leaves = _tensors(inputs)
    sizes = {len(leaf) if isinstance(leaf, Tensor) and leaf.dim() else 0 for leaf in leaves}
    if len(sizes) != 1 or sizes == {0}:
        what = "export_onnx takes tensors with an example in each row as example_inputs"
        raise InputError(
            what, name="example_inputs", cure="export_onnx(model, inputs, path) with the inputs of a batch"
        )


def _checked(outputs: Any) -> Any:
    is_dict = isinstance(outputs, dict) and all(isinstance(one, Tensor) for one in outputs.values())
    if not (isinstance(outputs, Tensor) or is_dict):
        what = f"export_onnx takes models that return a tensor or a dict of tensors, but got a {type(outputs).__name__}"
        raise InputError(what, name="model", cure="export a module that returns the tensor alone")
    return outputs
