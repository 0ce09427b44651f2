"""Where a program ran: what is recorded of it, and what is said of a difference."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from train_manager.runs.record.environment import devices, environment, flags, threads, variables
from train_manager.runs.record.packages import packages


def here() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(environment()))  # as it is read
    return found


def test_it_names_what_was_used() -> None:
    found = here()

    assert found["python"] == f"{platform.python_version()} (CPython)"
    assert found["torch"]["version"] == str(torch.__version__)
    assert found["torch"]["git"] == torch.version.git_version
    assert found["packages"]["numpy"] == importlib.metadata.version("numpy")
    assert found["devices"]["cpus"] == os.cpu_count()


def test_gpus_that_cannot_be_asked_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error of the GPU each question to CUDA raises."""

    def refuse() -> int:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", refuse)

    assert devices()["gpus"] == []


def test_gpus_in_use_are_told_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"GPU {number}")

    assert devices()["gpus"] == [{"name": "GPU 0"}, {"name": "GPU 1"}]


def test_the_threads_are_those_of_now() -> None:
    before, count = threads(), torch.get_num_threads()
    torch.set_num_threads(count + 1)
    try:
        after = threads()
    finally:
        torch.set_num_threads(count)

    assert (before["torch"], after["torch"]) == (count, count + 1)


@pytest.mark.parametrize(
    ("set_flag", "now", "before", "told"),
    [
        (torch._C._set_deterministic_algorithms, True, False, ("deterministic_algorithms", False, True)),
        (torch.set_default_dtype, torch.float64, torch.float32, ("default_dtype", "float32", "float64")),
        (partial(setattr, torch.backends.cudnn, "benchmark"), True, False, ("cudnn_benchmark", False, True)),
        (torch.set_flush_denormal, True, False, ("flush_denormal", False, True)),
    ],
    ids=["deterministic", "dtype", "cudnn", "denormal"],
)
def test_a_flag_that_was_changed_is_a_difference(set_flag: Any, now: Any, before: Any, told: tuple[Any, ...]) -> None:
    one = flags()
    set_flag(now)
    try:
        other = flags()
    finally:
        set_flag(before)

    assert [(name, one[name], other[name]) for name in one if one[name] != other[name]] == [told]


def test_autocast_around_the_run_is_a_flag() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert flags()["autocast_cpu"] == "bfloat16"


def test_a_setting_that_torch_refuses_to_tell_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a program has set TF32 by both interfaces of torch."""

    def refuse() -> str:
        raise RuntimeError("you have used mix of the legacy and new APIs")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", refuse)

    assert flags()["float32_matmul_precision"] is None


def test_only_variables_that_are_known_to_matter_are_recorded() -> None:
    given = {"HOME": "/home/me", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_DEBUG": "INFO", "AWS_SECRET": "x"}
    given |= {"TORCH_HUB_TOKEN": "x", "MKL_CONFIG": "https://me:hunter2@example.com/", "RANK": "0"}

    assert variables(given) == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_DEBUG": "INFO", "RANK": "0"}


def test_variables_that_are_asked_for_are_recorded_unless_they_are_secrets() -> None:
    given = {"LR": "0.1", "APP_SIZE": "3", "APP_TOKEN": "x", "APP": "1", "LRX": "1"}

    assert variables(given, ["LR", "APP_*"]) == {"APP_SIZE": "3", "LR": "0.1"}


# ---- packages --------------------------------------------------------------------------------------------------------


def install(folder: Path, name: str, version: str, url: dict[str, Any] | None = None) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nVersion: of the text\n")
    if url is not None:
        (info / "direct_url.json").write_text(json.dumps(url))


def test_packages_are_those_of_the_search_path_the_first_of_a_name_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "a", "Some_Package", "2.0")
    install(tmp_path / "b", "some.package", "1.0")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "none")])

    assert packages() == ({"some-package": "2.0"}, {})


def test_an_editable_package_is_told_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "mine", "0.1", {"url": "file:///home/me/my%20code", "dir_info": {"editable": True}})
    install(tmp_path, "copied", "0.1", {"url": "file:///home/me/other", "dir_info": {}})
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    assert packages()[1] == {"mine": "/home/me/my code"}


def test_a_package_that_is_half_installed_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken-1.dist-info").mkdir()
    install(tmp_path, "whole", "1")
    (tmp_path / "whole-1.dist-info" / "RECORD").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    assert packages() == ({"whole": "1"}, {})
