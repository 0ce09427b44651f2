from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TypeGuard

import pytest

import train_manager.extensions
from train_manager.errors import HookError
from train_manager.extensions import Checkpoints, default_extensions
from train_manager.testing import tiny_manager

INIT = train_manager.extensions.__file__
FOLDERS = sorted(path.parent for path in Path(INIT).parent.glob("*/__init__.py"))
WORDS = {"pre": "start", "post": "end", "around": "around"}
ROOT = Path(train_manager.__file__).parents[1]


def test_every_name_in_the_list_exists() -> None:
    for name in train_manager.extensions.__all__:
        assert getattr(train_manager.extensions, name).__name__ == name


def test_type_checkers_read_the_same_names_as_python() -> None:
    branch = next(node for node in ast.parse(Path(INIT).read_text()).body if isinstance(node, ast.If))
    imports = [node for node in branch.body if isinstance(node, ast.ImportFrom)]
    checked = {alias.asname: f"{node.module}.{alias.name}" for node in imports for alias in node.names}

    named = [getattr(train_manager.extensions, name) for name in train_manager.extensions.__all__]
    assert checked == {
        one.__name__: f"{one.__module__}.{one.__name__}"
        for one in named
        if one.__module__ != "train_manager.extensions"
    }


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_docstring_of_a_folder_lists_its_extensions(folder: Path) -> None:
    listed = re.findall(r"^    (\w+) +\w", (folder / "__init__.py").read_text(), flags=re.MULTILINE)

    files = {getattr(train_manager.extensions, name).__module__.rpartition(".")[2] for name in listed}
    assert files == {path.stem for path in folder.glob("*.py")} - {"__init__"}


def test_a_name_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'LossCurve'"):
        train_manager.extensions.LossCurve  # type: ignore[attr-defined]  # noqa: B018


def classes() -> list[ast.ClassDef]:
    """The classes of all extensions, as source."""
    files = [path for folder in FOLDERS for path in folder.glob("*.py")]
    found = [node for path in files for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    return [node for node in found if node.name in train_manager.extensions.__all__]


def is_of_a_write(decorator: ast.expr) -> TypeGuard[ast.Call]:
    return isinstance(decorator, ast.Call)


@pytest.mark.parametrize("source", classes(), ids=lambda source: source.name)
def test_the_docstring_of_an_extension_has_what_its_hooks_name(source: ast.ClassDef) -> None:
    """The stages, the parameters and the declared writes; hooks that are made in ``__init__`` are not in the source."""
    form = r"(.+\n\n.*>>> .*)\*Runs at:\* (.*)\n\n\*Asks for:\* (.*)\n\n\*Leaves behind:\* (.*)"
    found = re.fullmatch(form, ast.get_docstring(source) or "", flags=re.DOTALL)
    assert found, f"{source.name} needs an example, then *Runs at:*, *Asks for:* and *Leaves behind:*"
    _, runs_at, asks_for, leaves_behind = found.groups()

    for hook in (node for node in source.body if isinstance(node, ast.FunctionDef)):
        side, _, stage = hook.name.partition("_")
        if side in WORDS:
            assert WORDS[side] in runs_at, hook.name
            assert f"``{stage}``" in runs_at, hook.name
            for name in {argument.arg for argument in hook.args.args} - {"self", "train_manager", "fixtures"}:
                assert f"``{name}``" in asks_for, f"{hook.name} names {name}"
        for written in (one for one in hook.decorator_list if is_of_a_write(one)):
            for value in (one.value for one in written.args if isinstance(one, ast.Constant)):
                assert not isinstance(value, str) or f"``{value}``" in leaves_behind, f"{hook.name} writes {value}"


def test_all_names_are_listed_without_an_import_of_torch_tqdm_or_matplotlib() -> None:
    program = "import sys, train_manager.extensions as found; assert {*found.__all__} <= {*dir(found)}\n"
    program += "sys.exit(bool({'torch', 'tqdm', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


def test_the_defaults_are_a_new_dict_of_new_extensions_each_time() -> None:
    first, second = default_extensions(), default_extensions()
    usual = ["progress_bar", "log", "loss_curves", "checkpoints", "code_record", "run_record", "metric_store"]
    assert list(first) == usual
    assert not {id(extension) for extension in first.values()} & {id(extension) for extension in second.values()}


def test_the_defaults_have_the_names_that_a_list_gives_them() -> None:
    assert list(tiny_manager(*default_extensions().values()).extensions) == list(default_extensions())


@pytest.mark.parametrize("name", default_extensions())
def test_one_of_ones_own_takes_the_place_of_the_default_of_its_class(name: str, tmp_path: Path) -> None:
    mine = default_extensions()[name]
    tm = tiny_manager(extensions=[mine, default_extensions()], train_dir=tmp_path)

    assert list(tm.extensions) == list(default_extensions())
    assert tm[name] is mine


def test_a_training_resumes_with_checkpoints_beside_the_defaults(tmp_path: Path) -> None:
    for epochs in (1, 3):
        usual = default_extensions()
        del usual["code_record"]  # the tests may run outside of a repository
        tm = tiny_manager(extensions=[usual, Checkpoints(resume=True)], epochs=epochs, train_dir=tmp_path)
        tm.train()

    assert [row["epoch"] for row in tm.history.epochs] == [1, 2, 3]


def test_the_defaults_without_files_need_no_train_dir() -> None:
    tm = tiny_manager(extensions=default_extensions(files=False))
    tm.train()
    assert list(tm.extensions) == ["progress_bar", "log"]


WATCHERS = [
    *("ActivationStatistics", "ConfusionMatrix", "GradientNorms", "HardExamples", "PredictionGallery", "Throughput"),
    *("UpdateRatios", "WeightHistograms"),
]


@pytest.mark.parametrize("name", WATCHERS)
def test_two_extensions_that_would_write_one_series_are_refused(name: str) -> None:
    kind = getattr(train_manager.extensions, name)

    with pytest.raises(HookError, match=f"are both of class {name}, of which TrainManager has at most one"):
        tiny_manager(kind(), kind())
