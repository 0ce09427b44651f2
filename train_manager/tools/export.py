"""A trained model in another form: with layers of low rank, with int8 weights, or as an ONNX file."""

from __future__ import annotations

import copy
import importlib
import io
import logging
import math
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final, NamedTuple, cast, final

import torch
from torch import Tensor, nn

from train_manager.checks.batch_leaves import leaves_of, name_of, put_together
from train_manager.data.random_state import preserve_random_state
from train_manager.files.atomic import replace_file
from train_manager.loop.model_calls import ModelCall
from train_manager.telling.errors import InputError
from train_manager.validation import require_count, require_number

CONVOLUTIONS: Final = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
CONTAINERS: Final = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
DTYPES: Final = (torch.float32, torch.bfloat16, torch.float16)
"""The types of weights that torchao makes int8 weights of."""
TRACED: Final = 2  # examples that the exporter sees; it takes a size of 1 for a constant
TRIED: Final = (1, 5)  # examples in the batches with which the file is compared to the model
TOLERANCE: Final = 1e-3  # of the largest number of an output; float32 leaves differences near 1e-6
FOLDED: Final = 64  # numbers in a constant that the exporter may compute with; weights, int8 ones too, have more

Layer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d


# ---- low rank -----------------------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """The singular value decomposition of a layer's weight as a matrix: a row for each output."""

    left: Tensor
    values: Tensor
    right: Tensor

    @property
    def costs(self) -> int:
        """The number of parameters of each rank: a column of the left matrix and a row of the right one."""
        return len(self.left) + self.right.shape[1]

    @property
    def whole(self) -> int:
        """The number of weights of the layer as it is."""
        return len(self.left) * self.right.shape[1]


def factorize(model: nn.Module, share: float = 0.5, *, rank: int | None = None) -> nn.Module:
    """Return a copy of a model with fewer parameters, whose Linear and convolution layers have a low rank.

    >>> model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    >>> small = factorize(model, 0.5)
    >>> count = lambda model: sum(parameter.numel() for parameter in model.parameters())
    >>> count(small) <= 0.5 * count(model)
    True

    A layer becomes two: one from its inputs to as many numbers as its rank, without a bias, and one from there to its
    outputs (``"0"`` becomes ``"0.0"`` and ``"0.1"``). They hold its largest singular values, half of each (as a factor:
    the square root) in either. The outputs of a layer change by at most the largest value that is dropped, times the
    length of its inputs (Eckart and Young 1936). Train some more to make good for it.

    A layer stays as it is where two would not be smaller, where it stands at two places or shares its weight, where it
    has hooks, and inside of a module of PyTorch that reads its weight, such as ``TransformerEncoderLayer``.

    Args:
        model: stays as it is.
        share: the share of the parameters of the whole model that is left at most. The ranks follow from it: a
            singular value is dropped first if its share in the squares of its layer is small for the parameters that
            it takes.
        rank: the rank of all layers, in place of a share.

    Raises:
        InputError: no layer can be split, the share cannot be reached, or a weight is nan or infinite.
    """
    made = copy.deepcopy(model)
    layers = _layers(made)
    for name, layer in layers.items():
        _require_finite(name, layer)
    parts = {name: _parts_of(layer) for name, layer in layers.items()}
    if rank is not None:
        ranks = dict.fromkeys(parts, require_count(rank, "rank", at_least=1))
    else:
        share = require_number(share, "share", above=0.0, below=1.0)
        ranks = _ranks(parts, sum(one.numel() for one in made.parameters()), share) if parts else {}
    ranks = {name: number for name, number in ranks.items() if number * parts[name].costs < parts[name].whole}
    if not ranks:
        what = f"factorize finds no layer in the model ({type(model).__name__}) that two would be smaller than"
        raise InputError(what, name="model", cure="leave low rank out")
    for name, number in ranks.items():
        made = _replace(made, name, number, parts[name])
    return made


def load_factorized(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """Return a copy of a model with the layers and the weights of one that ``factorize`` has returned.

    >>> model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    >>> state = factorize(model).state_dict()
    >>> _ = load_factorized(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), state)

    Args:
        model: a model as the one that was given to ``factorize``, with any weights.
        state: the ``state_dict`` of what it returned.
    """
    made = copy.deepcopy(model)
    for name in _layers(made):
        first = state.get(f"{name}.0.weight".removeprefix("."))
        if first is not None and f"{name}.1.weight".removeprefix(".") in state:
            made = _replace(made, name, len(first))
    made.load_state_dict(state)
    return made


def _layers(model: nn.Module) -> dict[str, Layer]:
    """Return the layers that may be split, by name."""
    modules = dict(model.named_modules(remove_duplicate=False))
    places = Counter(map(id, modules.values()))
    users = Counter(id(held) for module in model.modules() for held in module.parameters(recurse=False))
    return {
        name: module
        for name, module in modules.items()
        # Not subclasses: they may compute otherwise, or be read from outside, as in MultiheadAttention.
        if (type(module) is nn.Linear or (type(module) in CONVOLUTIONS and module.groups == 1))
        and places[id(module)] == users[id(module.weight)] == 1
        and not (module._forward_hooks or module._forward_pre_hooks)
        and (not name or _calls_its_modules(modules[name.rpartition(".")[0]]))
    }


def _calls_its_modules(parent: nn.Module) -> bool:
    return type(parent) in CONTAINERS or not type(parent).__module__.startswith("torch.nn.")


def _require_finite(name: str, layer: Layer) -> None:
    """Refuse a weight that has no singular values."""
    if not layer.weight.isfinite().all():
        what = f"factorize: the weight of layer {name!r} has numbers that are nan or infinite"
        raise InputError(what, name="model", cure="load the weights of a training that has not failed")


def _parts_of(layer: Layer) -> Parts:
    # Weights of half precision have no decomposition on the CPU.
    return Parts(*torch.linalg.svd(layer.weight.detach().flatten(1).float(), full_matrices=False))


def _ranks(parts: Mapping[str, Parts], count: int, share: float) -> dict[str, int]:
    """Return the rank of each layer, with which a share of all parameters is left.

    With the same share for each layer instead, the networks of ``examples/smaller_models.py`` lost 22 to 84 points of
    accuracy before further training; so they lose 37 at most.

    Raises:
        InputError: the model has too many other parameters.
    """
    ranks = {name: len(one.values) for name, one in parts.items()}
    others = count - sum(one.whole for one in parts.values())
    least = others + sum(_size(one, 1) for one in parts.values())
    if least > share * count:
        what = f"factorize cannot leave {share:g} of {count:,} parameters: at rank 1, {least:,} of them are left"
        possible = math.ceil(100 * least / count) / 100
        cure = f"give a share of at least {possible:g}" if possible < 1 else "leave low rank out"
        raise InputError(what, name="share", cure=cure)
    tiny = torch.finfo(torch.float).tiny  # keeps a layer of zeros from 0 / 0
    shares = {name: one.values.square() / one.values.square().sum().clamp_min(tiny) for name, one in parts.items()}
    worth = [(value / parts[name].costs, name) for name, of_layer in shares.items() for value in of_layer.tolist()[1:]]
    left = count
    # The values of a layer fall, so the smallest is the last of its layer; the largest of each layer stays.
    for _, name in sorted(worth):
        if left <= share * count:
            break
        left -= _size(parts[name], ranks[name]) - _size(parts[name], ranks[name] - 1)
        ranks[name] -= 1
    return ranks


def _size(parts: Parts, rank: int) -> int:
    """Return the number of weights of a layer at a rank; it stays as it is where two would not be smaller."""
    return min(parts.whole, rank * parts.costs)


def _replace(model: nn.Module, name: str, rank: int, parts: Parts | None = None) -> nn.Module:
    """Return the model with two layers of a rank in the place of one."""
    layer = cast(Layer, model.get_submodule(name))
    with preserve_random_state():  # new layers draw their weights
        pair = _pair(layer, rank).to(layer.weight).train(layer.training)
    if parts is not None:
        _fill(pair, layer, rank, parts)
    if not name:
        return pair
    model.set_submodule(name, pair)
    return model


def _pair(layer: Layer, rank: int) -> nn.Sequential:
    has_bias = layer.bias is not None
    if isinstance(layer, nn.Linear):
        return nn.Sequential(
            nn.Linear(layer.in_features, rank, bias=False), nn.Linear(rank, layer.out_features, bias=has_bias)
        )
    places = {name: getattr(layer, name) for name in ("stride", "padding", "dilation", "padding_mode")}
    kind: Any = type(layer)
    return nn.Sequential(
        kind(layer.in_channels, rank, layer.kernel_size, bias=False, **places),
        kind(rank, layer.out_channels, 1, bias=has_bias),
    )


@torch.no_grad()
def _fill(pair: nn.Sequential, layer: Layer, rank: int, parts: Parts) -> None:
    roots = parts.values[:rank].sqrt()
    first, second = (cast(Layer, one).weight for one in pair)
    first.copy_((roots[:, None] * parts.right[:rank]).view_as(first))
    second.copy_((parts.left[:, :rank] * roots).view_as(second))
    for one in (first, second):
        one.requires_grad_(layer.weight.requires_grad)
    if layer.bias is not None:
        cast(Tensor, pair[1].bias).copy_(layer.bias).requires_grad_(layer.bias.requires_grad)


# ---- int8 ---------------------------------------------------------------------------------------------------------


def quantize(model: nn.Module) -> nn.Module:
    """Return a copy of a model whose Linear layers have int8 weights, to predict with::

        small = quantize(model)
        torch.save(small.state_dict(), "int8.pt")  # about a quarter of the bytes of these layers

        loaded = quantize(new_model())
        loaded.load_state_dict(torch.load("int8.pt", weights_only=True), assign=True)

    Each row of a weight is rounded to whole numbers from -128 to 127 times a number of its own (torchao's
    ``Int8WeightOnlyConfig``). Biases, inputs and all other layers, convolutions among them, stay as they are. The copy
    cannot be trained.

    Args:
        model: stays as it is.

    Raises:
        ImportError: torchao is not installed: ``pip install "train-manager[quantize]"``.
        InputError: there is no Linear layer, or one has weights of another type than float32, bfloat16 and float16.
    """
    torchao = import_extra("torchao.quantization", "quantize", "quantize")
    _require_linear(model)
    made = copy.deepcopy(model)
    # set_inductor_config would change settings of torch.compile for the whole process.
    with preserve_random_state(), quiet():
        torchao.quantize_(made, torchao.Int8WeightOnlyConfig(set_inductor_config=False))
    return made


def _require_linear(model: nn.Module) -> None:
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    if not layers:
        what = f"quantize makes int8 weights of Linear layers, but the model ({type(model).__name__}) has none"
        raise InputError(what, name="model", cure="leave int8 out")
    for name, layer in layers.items():
        if layer.weight.dtype not in DTYPES:
            what = f"quantize takes weights of float32, but those of {name or 'the model'!r} are {layer.weight.dtype}"
            raise InputError(what, name="model", cure="quantize(copy.deepcopy(model).float())")


# ---- ONNX ---------------------------------------------------------------------------------------------------------


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


# ---- optional packages --------------------------------------------------------------------------------------------


@contextmanager
def quiet() -> Iterator[None]:
    """Keep from the user what other packages print, log and warn of in the ``with`` block; errors are raised.

    >>> with quiet():
    ...     print("Failed to load a library that is not needed")
    """
    before = logging.root.manager.disable
    # Loggers are disabled too, since their handlers hold the stderr of the time when they were made.
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def import_extra(name: str, extra: str, asked_by: str) -> Any:
    """Return a module of an optional package.

    Args:
        name: the module.
        extra: the extra of this library that installs the package.
        asked_by: the function that needs it.

    Raises:
        ImportError: it is not installed, or cannot be imported.
    """
    try:
        with quiet():
            return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        what = f'{asked_by} needs {package} ({error}): pip install "train-manager[{extra}]"'
        raise ImportError(what) from error
