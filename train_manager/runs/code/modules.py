"""The files that run: the script, the modules that it has imported from its own folder, and where packages lie.

What is installed is not among the modules: the record of a run tells the versions of packages.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

from train_manager.telling.errors import InputError

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
# Where Python itself lies, and the commands of its environment.
_OF_PYTHON: Final = [os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "scripts")]
_CURE: Final = 'give names of packages, or folders: others=["my_package", Path("../library")]'


def entry_script() -> Path | None:
    """Return the file that the interpreter was asked to run; None in a notebook, or if that one is installed.

    A command such as ``pytest`` or ``torchrun`` is installed: what it runs lies elsewhere.
    """
    path = _file_of(sys.modules.get("__main__"))
    return None if path is None or _is_installed(path) else path


def code_folder() -> Path:
    """Return the folder from which the code of this process comes: that of its script, else the working folder.

    For ``python -m package.train`` it is the folder that has the package.
    """
    script = entry_script()
    if script is None:
        return Path.cwd()
    # Python sets `__spec__` of the main module only for `python -m`; each dot in its name is one folder further up.
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    depth = str(getattr(spec, "name", "")).count(".") if spec is not None else 0
    return script.parents[min(depth, len(script.parents) - 1)]


def loaded_files(folder: Path | None = None) -> list[Path]:
    """Return the script and the files of the imported modules that lie in a folder or below it, sorted.

    Args:
        folder: None takes ``code_folder()``.
    """
    root = (code_folder() if folder is None else folder).resolve()
    script = entry_script()
    # A copy of the modules: another thread may import one meanwhile, and a changed dict cannot be iterated.
    files = {script, *map(_file_of, list(sys.modules.values()))} - {None}
    return sorted(path for path in files if path and path.is_relative_to(root) and not _is_installed(path))


def _file_of(module: ModuleType | None) -> Path | None:
    """Return the file of a module; None if it has none on disk, such as a module out of a zip file."""
    try:
        # Not getattr: it would make a lazy module import itself here, while the training runs.
        name = object.__getattribute__(module, "__dict__").get("__file__")
        return _path(name) if isinstance(name, str) else None
    except Exception:  # programs put any object into sys.modules, and its attributes may raise anything
        return None


def _path(name: str) -> Path | None:
    # Only the folder is resolved: a file that is a link keeps the name under which the program imported it.
    folder, file = os.path.split(os.path.abspath(name))
    path = Path(_real(folder), file)
    return path if path.is_file() else None


@functools.cache  # thousands of modules lie in hundreds of folders
def _real(folder: str) -> str:
    return os.path.realpath(folder)


def _is_installed(path: Path) -> bool:
    return not _INSTALLED.isdisjoint(path.parts) or any(map(path.is_relative_to, _OF_PYTHON))


def source_folders(
    others: Iterable[str | os.PathLike[str]], editable: Mapping[str, str], *, asked_by: str = ""
) -> dict[str, Path]:
    """Return the folder of each package or path, by the name to show.

    Args:
        others: names of packages, as they are installed or imported, or paths of folders.
        editable: the folders of packages that are installed in editable form, by their normalized names.
        asked_by: whose argument it is, for the error.

    Raises:
        InputError: there is not such a package or folder.
    """
    found = {}
    for other in others:
        name, path = os.fspath(other), Path(other).expanduser()
        folder = None
        if isinstance(other, str) and os.sep not in other:
            # A name is looked up as a package first, then as a folder in the working folder.
            noted = editable.get(re.sub(r"[-_.]+", "-", other).lower())
            folder = Path(noted) if noted and os.path.isdir(noted) else _module_folder(other)
        if folder is None and not path.is_dir():
            what = f"others has {name!r:.60}, which is neither a folder nor an installed package"
            raise InputError(what, name="others", asked_by=asked_by, cure=_CURE)
        found[name] = folder or path.absolute()
    return found


def _module_folder(name: str) -> Path | None:
    """Return the folder of a module, without an import of it."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    places = [] if spec is None else [*(spec.submodule_search_locations or []), *filter(None, [spec.origin])]
    folders = (Path(place) if os.path.isdir(place) else Path(place).parent for place in places if os.path.exists(place))
    return next((folder.resolve() for folder in folders), None)
