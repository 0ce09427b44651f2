"""The script that runs and the modules that it has imported from its own folder: the code where no repository is.

What is installed is not among them: the record of a run tells the versions of packages.
"""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Final

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


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
    return not _INSTALLED.isdisjoint(path.parts) or any(path.is_relative_to(folder) for folder in _folders())


@functools.cache
def _folders() -> list[Path]:
    """Return where Python itself lies, its packages, and the commands of its environment."""
    names = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    found = [sysconfig.get_path(name) for name in names] + site.getsitepackages() + [site.getusersitepackages()]
    return [Path(os.path.realpath(name)) for name in found if name]
