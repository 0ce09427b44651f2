"""The contents of a checkpoint, as lines of text; needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from train_manager.checkpoints.contents import Stored, components_of, model_of
from train_manager.checkpoints.state_tree import tensor_names
from train_manager.checkpoints.verification import read_manifest, translate_gone_errors, verify
from train_manager.files.json_values import Decoder, mark_of
from train_manager.rebuilding.record_tree import parts_of
from train_manager.rebuilding.recorded_rows import expression
from train_manager.telling.errors import CheckpointError

TENSORS_SHOWN: Final = 30  # tensors of the model that are listed without --all
WIDTH: Final = 12  # characters of the column of labels
TEXT: Final = 100  # characters of a value, after which it is cut off
# Entries of the manifest that `manifest_lines` renders itself; every other entry is a fact of the user.
OWN: Final = ("format", "files", "step", "time", "versions", "threads", "metrics", "monitored")


def checkpoint_lines(path: Path, *, shows_all: bool = False) -> Iterator[str]:
    """Yield the lines that describe a checkpoint; then, if it is damaged, raise.

    Raises:
        CheckpointError: the folder is damaged or is not a checkpoint. A sound manifest is shown before the error.
    """
    manifest = read_manifest(path)
    yield from manifest_lines(manifest)
    # The manifest is small and has a hash of itself, so its lines are shown even where another file is damaged.
    verify(path)
    with translate_gone_errors(path):
        yield from component_lines(components_of(path))
        yield from tensor_lines("model", model_of(path), shows_all=shows_all)


def manifest_lines(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each entry of a manifest."""
    for name in ("step", "time"):
        yield line(name, manifest.get(name, "unknown"))
    yield line("versions", ", ".join(f"{name} {version}" for name, version in manifest["versions"].items()))
    yield line("threads", manifest.get("threads", "unknown"))
    if manifest.get("monitored") is not None:
        yield line("monitored", f"{manifest['monitored']:.6g}")
    for name, metrics in (manifest.get("metrics") or {}).items():
        yield line("metrics", f"{name}: {_metrics(metrics)}")
    for name in (name for name in manifest if name not in OWN):
        yield line(name, _short(manifest[name]))
    yield line("files", ", ".join(f"{name} {_bytes(entry['size'])}" for name, entry in manifest["files"].items()))


def component_lines(components: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each saved component of a state, except the tensors of the model."""
    yield line("epoch", components.get("epoch_num", "unknown"))
    yield line("parts", ", ".join(components))
    # A line for each of these components that holds something.
    for name in ("counts", "data", "history"):
        if components.get(name):
            yield line(name, _entries(components[name]))
    if "random" in components:
        yield line("random", ", ".join(name for name, state in components["random"].items() if state) or "none")
    # A line for each optimizer, extension and finding.
    for name, optimizer in components.get("optimizers", {}).items():
        yield line("optimizer", f"{name}: {_optimizer(optimizer)}")
    for name, state in components.get("extensions", {}).items():
        yield line("extension", f"{name}: {_entries(state) if state else 'no state'}")
    for finding in components.get("findings") or ():
        place = f" ({finding['where']})" if finding["where"] else ""
        yield line("finding", f"{finding['check']}, {finding['level']}: {finding['what']}{place}")
    # The arguments of the program as they were recorded; None is a default that was not given.
    for argument, value in parts_of(Decoder()(components.get("parameters"))).items():
        if value is not None:
            yield line("parameter", _cut(f"{argument} = {expression(value)}"))


def tensor_lines(title: str, tensors: Mapping[str, Stored], *, shows_all: bool = False) -> Iterator[str]:
    """Yield a line for each tensor: its name, shape and dtype."""
    numbers = sum(math.prod(tensor.shape) for tensor in tensors.values())
    yield line(title, f"{_count(len(tensors), 'tensor')}, {_count(numbers, 'number')}")
    # Columns are as wide as the widest name and shape among the lines that are shown.
    shown = [*tensors.items()][: None if shows_all else TENSORS_SHOWN]
    names = max((len(name) for name, _ in shown), default=0)
    shapes = max((len(_shape(tensor)) for _, tensor in shown), default=0)
    for name, tensor in shown:
        yield f"  {name:<{names}}  {_shape(tensor):<{shapes}}  {tensor.dtype}"
    if len(tensors) > len(shown):
        yield f"  and {len(tensors) - len(shown)} more (--all shows them)"


def line(label: str, value: object) -> str:
    """Return a line with a label."""
    return f"{label:<{WIDTH}}{value}"


def _optimizer(state: Any) -> str:
    try:
        rates = [group["lr"] for group in state["param_groups"]]
        parameters = sum(len(group["params"]) for group in state["param_groups"])
    except (LookupError, TypeError):  # an optimizer of another library has a state of its own form
        return _entries(state)
    shown = ", ".join(dict.fromkeys(_short(rate) for rate in rates))
    held = _count(len(tensor_names(state["state"])), "tensor")
    return f"lr {shown}; {_count(parameters, 'parameter')}, {held} of state"


def _entries(state: Any) -> str:
    # A dict with a mark like "$tuple" is one value in the form of `state_tree`, not several entries.
    if not isinstance(state, dict) or mark_of(state) is not None:
        return _short(state)
    return ", ".join(f"{key} {_short(value)}" for key, value in state.items())


def _short(value: Any) -> str:
    match value:
        # The marks of `state_tree` are replaced by their values; tensors and long containers by a count.
        case {"$tensor": _}:
            return "(a tensor)"
        case {"$float": text}:
            return str(text)
        case dict() | list() if value and (tensors := tensor_names(value)):
            return f"({_count(len(tensors), 'tensor')})"
        case {"$tuple": list(items)} if len(items) <= 3:
            return f"({', '.join(map(_short, items))})"
        case dict() | list():
            return f"({len(value)})" if value else "(none)"
        case float():
            return f"{value:.6g}"
    return _cut(str(value))


def _metrics(metrics: Any) -> str:
    if not isinstance(metrics, Mapping):
        return _short(metrics)
    return ", ".join(f"{name} {_short(value)}" for name, value in metrics.items())


def _shape(tensor: Stored) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _bytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _cut(text: str) -> str:
    return text if len(text) <= TEXT else f"{text[:TEXT]}..."


def reason(error: CheckpointError, path: Path) -> str:
    """Return the text of an error about a checkpoint, without the path of the checkpoint."""
    return error.what.replace(f"{path} is damaged: ", "").replace(f"{path} ", "").replace(f"{path}/", "")
