"""What a deployment exports: its config, checked before a training has taken hours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from train_manager.files.atomic import require_new
from train_manager.telling.errors import InputError, did_you_mean, near
from train_manager.tools.export_onnx import require_onnx
from train_manager.tools.extras import import_extra
from train_manager.validation import require_number

EXPORTS: Final = ("onnx", "int8", "int8_onnx", "low_rank", "low_rank_onnx")
KEYS: Final = {
    "folder": "the new folder",
    "exports": f"any of {', '.join(EXPORTS)}",
    "low_rank": "the share of the parameters that low rank leaves; 0.5 if it is left out",
}
"""The keys of a deployment."""
SHARE: Final = 0.5  # of the parameters that low rank leaves


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
