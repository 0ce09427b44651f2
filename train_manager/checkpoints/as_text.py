"""The contents of a checkpoint, or of a file of tensors, as lines of text or as data; needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open

from train_manager.checkpoints.hashed_file import no_tensors_error, open_file
from train_manager.checkpoints.manifest import MODEL, TREE
from train_manager.checkpoints.state_tree import tensor_names
from train_manager.checkpoints.verification import read_manifest, translate_gone_errors, verify
from train_manager.files.json_text import json_of
from train_manager.files.json_values import Decoder, mark_of
from train_manager.rebuilding.record_tree import parts_of
from train_manager.rebuilding.recorded_rows import expression
from train_manager.telling.errors import CheckpointError

TENSORS_SHOWN: Final = 30  # tensors of a file that are listed without --all
TEXT: Final = 100  # characters of a value, after which it is cut off
# The label of each entry of what holds several of a kind; what is neither here nor in ENTRIES is named only.
EACH: Final = {"metrics": "metrics", "optimizers": "optimizer", "extensions": "extension"}
ENTRIES: Final = ("counts", "data", "history")
AS_DATA: Final = ("counts", "history", "findings")  # parts of the state that a program gets as they are


def checkpoint_lines(path: Path, *, shows_all: bool = False) -> Iterator[str]:
    """Yield the lines that describe a checkpoint; then, if it is damaged, raise.

    Raises:
        CheckpointError: the folder is damaged or is not a checkpoint. A sound manifest is shown before the error.
    """
    yield from _manifest_lines(read_manifest(path))
    # The manifest is small and has a hash of itself, so its lines are shown even where another file is damaged.
    verify(path)
    with translate_gone_errors(path):
        yield from _state_lines(_read_state(path))
        yield from tensor_lines("model", path / MODEL, shows_all=shows_all)


def checkpoint_data(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the same as data: the manifest, then parts of the state, then the tensors; values as in ``json_values``.

    Raises:
        CheckpointError: the folder is damaged or is not a checkpoint. A sound manifest is yielded before the error.
    """
    yield "manifest", read_manifest(path)
    verify(path)
    with translate_gone_errors(path):
        state = _read_state(path)
        yield "epoch", state.get("epoch_num")
        yield from ((name, state.get(name)) for name in AS_DATA)
        parts = parts_of(Decoder()(state.get("parameters")))
        yield "parameters", {name: expression(value) for name, value in parts.items() if value is not None}
        yield from tensor_data(path / MODEL)


def tensor_data(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield name, shape and dtype of each tensor of a ``.safetensors`` file, as one list.

    Raises:
        CheckpointError: it is not such a file, or it is cut off.
    """
    yield "tensors", [dict(zip(("name", "shape", "dtype"), row, strict=True)) for row in _tensor_rows(path)]


def tensor_lines(title: str, path: Path, *, shows_all: bool = False) -> Iterator[str]:
    """Yield a line for each tensor that the header of a ``.safetensors`` file describes: its name, shape and dtype.

    Raises:
        CheckpointError: it is not such a file, or it is cut off.
    """
    rows = _tensor_rows(path)
    yield line(title, f"{_count(len(rows), 'tensor')}, {_count(sum(math.prod(row[1]) for row in rows), 'number')}")
    shown = [(name, "x".join(map(str, shape)) or "scalar", dtype) for name, shape, dtype in rows]
    shown = shown if shows_all else shown[:TENSORS_SHOWN]
    names, shapes = (max((len(row[column]) for row in shown), default=0) for column in (0, 1))
    for name, shape, dtype in shown:
        yield f"  {name:<{names}}  {shape:<{shapes}}  {dtype}"
    if len(rows) > len(shown):
        yield f"  and {len(rows) - len(shown)} more (--all shows them)"


def line(label: str, value: object) -> str:
    """Return a line with a label."""
    return f"{label:<12}{value}"


def reason(error: CheckpointError, path: Path) -> str:
    """Return the text of an error about a checkpoint, without the path of the checkpoint."""
    return error.what.replace(f"{path} is damaged: ", "").replace(f"{path} ", "").replace(f"{path}/", "")


def _tensor_rows(path: Path) -> list[tuple[str, list[int], str]]:
    with open_file(path, follow=True):  # the library would wait for a pipe in the place of the file
        try:
            # Only the header is read: a file of 10 GB is listed as fast as one of 10 kB.
            with safe_open(path, framework="numpy") as file:
                found = [(name, file.get_slice(name)) for name in sorted(file.keys())]
                return [(name, one.get_shape(), one.get_dtype()) for name, one in found]
        except SafetensorError as error:
            raise no_tensors_error(path, error) from None


def _read_state(path: Path) -> dict[str, Any]:
    with open_file(path / TREE) as file:
        state = json_of(file.read(), str(path / TREE))
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} is damaged: {TREE} is not an object", name=path.name)
    return state


def _manifest_lines(manifest: Mapping[str, Any]) -> Iterator[str]:
    sizes = {name: f"{entry['size'] / 1e3:,.1f} kB" for name, entry in manifest["files"].items()}
    base = manifest.get("base")
    shown = {"base": f"{base['sha256'][:8]}, {len(base['tensors'])} tensors that are not in it"} if base else {}
    for name, value in {"step": "unknown", **manifest, "files": sizes, **shown}.items():
        if name in EACH:
            yield from _lines_of_each(name, value or {})
        elif name not in ("format", "rows") and value is not None:
            yield line(name, _entries(value))


def _state_lines(state: Mapping[str, Any]) -> Iterator[str]:
    yield line("epoch", state.get("epoch_num", "unknown"))
    yield line("parts", ", ".join(state))
    for name, value in state.items():
        if name in EACH:
            yield from _lines_of_each(name, value, state.get("fit"))
        elif name in ENTRIES and value:
            yield line(name, _entries(value))
        elif name == "random":
            yield line(name, ", ".join(kind for kind, kept in value.items() if kept) or "none")
    for finding in state.get("findings") or ():
        place = f" ({finding['where']})" if finding["where"] else ""
        yield line("finding", f"{finding['check']}, {finding['level']}: {finding['what']}{place}")
    # The arguments of the program as they were recorded; None is a default that was not given.
    for argument, value in parts_of(Decoder()(state.get("parameters"))).items():
        if value is not None:
            yield line("parameter", _cut(f"{argument} = {expression(value)}"))


def _lines_of_each(name: str, values: Mapping[str, Any], fit: Any = None) -> Iterator[str]:
    for key, value in values.items():
        text = (
            f"{_class_of(key, fit)}{_optimizer(value)}"
            if name == "optimizers"
            else _entries(value)
            if value
            else "no state"
        )
        yield line(EACH[name], f"{key}: {text}")


def _class_of(optimizer: str, fit: Any) -> str:
    try:
        return f"{fit['optimizers'][optimizer]['class']}, "
    except (LookupError, TypeError):  # a checkpoint that another program has put together
        return ""


def _optimizer(state: Any) -> str:
    try:
        groups, held = state["param_groups"], tensor_names(state["state"])
        rates = ", ".join(dict.fromkeys(_short(group["lr"]) for group in groups))
        parameters = sum(len(group["params"]) for group in groups)
    except (LookupError, TypeError):  # an optimizer of another library has a state of its own form
        return _entries(state)
    return f"lr {rates}; {_count(parameters, 'parameter')}, {_count(len(held), 'tensor')} of state"


def _entries(state: Any) -> str:
    # A dict with a mark like "$tuple" is one value in the form of `state_tree`, not several entries.
    if not isinstance(state, dict) or mark_of(state) is not None:
        return _short(state)
    return ", ".join(f"{key} {_short(value)}" for key, value in state.items())


def _short(value: Any) -> str:
    match value:
        # The marks of `state_tree` are replaced by their values; tensors and long containers by a count.
        case {"$float": text}:
            return str(text)
        case dict() | list() if tensors := tensor_names(value):
            return f"({_count(len(tensors), 'tensor')})"
        case {"$tuple": list(items)} if len(items) <= 3:
            return f"({', '.join(map(_short, items))})"
        case dict() | list():
            return f"({len(value)})" if value else "(none)"
        case float():
            return f"{value:.6g}"
    return _cut(str(value))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _cut(text: str) -> str:
    return text if len(text) <= TEXT else f"{text[:TEXT]}..."
