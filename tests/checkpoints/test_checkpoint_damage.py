"""Damage to a checkpoint is noticed before anything is decoded, and the error says which file and how."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints.hostile import resealed
from tests.checkpoints.states import same, small_state
from tests.support.rotation import share_of
from train_manager.checkpoints import checkpoint, verification
from train_manager.checkpoints.checkpoint import read_checkpoint, write_checkpoint
from train_manager.checkpoints.manifest import render_manifest
from train_manager.checkpoints.verification import verify
from train_manager.errors import CheckpointError

FILES = ["manifest.json", "model.safetensors", "state.json", "state.safetensors"]
NAME = "step-000000000001"


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path, NAME, small_state(1), {"metrics": {"loss": 0.5}})


def reason(path: Path) -> str:
    """What the check says, after the path of the checkpoint."""
    with pytest.raises(CheckpointError) as info:
        read_checkpoint(path)
    assert info.value.what.startswith(str(path))
    return info.value.what.removeprefix(f"{path}")


def noticed(path: Path, file: str, damaged: bytes) -> bool:
    """Whether the check notices other bytes in a file, and names it; the file is put back."""
    before = (path / file).read_bytes()
    assert damaged != before
    put(path / file, damaged)
    try:
        return file in reason(path)
    finally:
        put(path / file, before)


def put(path: Path, content: bytes) -> None:
    """Put other bytes into a file in place: a file that is emptied first is a wait for the disk on ext4."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


def flipped(content: bytes, chance: random.Random) -> bytes:
    place, bit = chance.randrange(len(content)), 1 << chance.randrange(8)
    return content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]


def truncated(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def zeroed(content: bytes, chance: random.Random) -> bytes:
    """A page of zeros, as a power failure leaves it; the pages are smaller, since the files are."""
    pages = [page for page in range(0, len(content), 64) if any(content[page : page + 64])]
    page = chance.choice(pages)
    return content[:page] + bytes(len(content[page : page + 64])) + content[page + 64 :]


@pytest.mark.parametrize(("damage", "times"), [(flipped, 1000), (truncated, 300), (zeroed, 300)])
def test_damage_at_a_random_place_is_always_noticed(
    sound: Path, damage: Callable[[bytes, random.Random], bytes], times: int
) -> None:
    chance = random.Random(0)
    contents = {file: (sound / file).read_bytes() for file in FILES}
    files = [chance.choice(FILES) for _ in range(share_of(times))]

    assert all(noticed(sound, file, damage(contents[file], chance)) for file in files)
    assert same(read_checkpoint(sound)["model"], small_state(1)["model"])


@pytest.mark.parametrize("file", FILES[1:])
def test_how_a_file_is_damaged_is_said(sound: Path, file: str) -> None:
    content = (sound / file).read_bytes()
    (sound / file).write_bytes(content[:-1] + b"?")
    changed = reason(sound)
    (sound / file).write_bytes(content[:-3])
    short = reason(sound)
    (sound / file).write_bytes(content + b"!")
    long = reason(sound)
    (sound / file).write_bytes(b"")
    empty = reason(sound)
    (sound / file).unlink()
    missing = reason(sound)

    assert changed == f" is damaged: {file} has changed since it was written (its SHA-256 differs)"
    assert short == f" is damaged: {file} has {len(content) - 3} of {len(content)} bytes"
    assert long == f" is damaged: {file} has {len(content) + 1} of {len(content)} bytes"
    assert empty == f" is damaged: {file} is empty"
    assert missing == f" is damaged: {file} is missing"


def test_a_folder_without_a_manifest_is_not_a_checkpoint(sound: Path) -> None:
    (sound / "manifest.json").unlink()

    assert reason(sound) == " is not a checkpoint: it has no manifest.json"


def test_where_nothing_is_there_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    for name in ("nothing", "file"):
        with pytest.raises(CheckpointError) as info:
            verify(tmp_path / name)
        assert str(info.value) == f"there is no checkpoint at {tmp_path / name}"


def with_manifest(path: Path, **changes: Any) -> str:
    """What the check says of a manifest that is changed, with a right sum of its own."""
    found = {key: value for key, value in verify(path).items() if key not in changes} | changes
    (path / "manifest.json").write_bytes(
        render_manifest({key: value for key, value in found.items() if value is not None})
    )
    return reason(path)


@pytest.mark.parametrize(
    ("number", "writer", "cure"),
    [
        (3, "a newer", "update train_manager"),
        (1, "an earlier", 'load it with that train_manager, or begin anew, with resume="fresh"'),
    ],
)
def test_another_format_is_told_apart_from_damage(sound: Path, number: int, writer: str, cure: str) -> None:
    with_manifest(sound, format=number)

    with pytest.raises(CheckpointError) as info:
        verify(sound)
    assert not verification.is_damage(info.value)
    assert str(info.value) == (
        f"{sound}/manifest.json was written by {writer} train_manager (format {number}); this one reads format 2\n"
        f"  {cure}"
    )


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"null", b"\xff", b'{"format": "1"}', b'{"format": true}', b"[" * 100_000, b"{" * 9]
)
def test_a_foreign_manifest_is_named(sound: Path, content: bytes) -> None:
    (sound / "manifest.json").write_bytes(content)

    assert reason(sound).startswith("/manifest.json is ")


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "..", "", "state.json\n", "model.pkl"])
def test_a_manifest_cannot_name_another_file(sound: Path, name: str) -> None:
    files = verify(sound)["files"]
    told = with_manifest(sound, files={**files, name: files["state.json"]})

    assert told == f"/manifest.json must name model.safetensors, state.json, state.safetensors, but also names {name!r}"


def test_a_manifest_must_name_all_files(sound: Path) -> None:
    files = verify(sound)["files"]
    del files["model.safetensors"]

    assert with_manifest(sound, files=files) == "/manifest.json does not name model.safetensors"


@pytest.mark.parametrize("entry", [None, 3, {}, {"size": "3", "sha256": ""}, {"size": True, "sha256": ""}, {"size": 3}])
def test_a_manifest_with_an_invalid_entry_is_named(sound: Path, entry: Any) -> None:
    files = {**verify(sound)["files"], "state.json": entry}

    assert with_manifest(sound, files=files) == "/manifest.json is damaged: the entry of state.json is invalid"


def test_a_manifest_that_is_too_large_is_not_read(sound: Path) -> None:
    os.truncate(sound / "manifest.json", 1 << 40)  # a hole, which takes no room on the disk

    assert reason(sound) == " is damaged: manifest.json is larger than any manifest"


def test_files_swapped_between_two_checkpoints_are_noticed(sound: Path) -> None:
    other = write_checkpoint(sound.parent, "step-000000000002", small_state(2), {})

    for file in FILES:
        shutil.move(sound / file, sound / "kept")
        shutil.copy(other / file, sound / file)
        assert "is damaged" in reason(sound)
        shutil.move(sound / "kept", sound / file)
    verify(sound)


def test_bytes_that_change_after_they_were_checked_change_nothing(sound: Path) -> None:
    found = read_checkpoint(sound)
    for file in FILES:
        put(sound / file, bytes((sound / file).stat().st_size))

    assert same(found["model"], small_state(1)["model"])
    assert same(found["optimizers"], small_state(1)["optimizers"])


def test_bytes_that_change_while_they_are_checked_are_noticed(sound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = verification.verify_sizes

    def changing(path: Path) -> Any:
        found = real(path)
        (path / "model.safetensors").write_bytes((path / "model.safetensors").read_bytes()[:-1] + b"?")
        return found

    monkeypatch.setattr(checkpoint, "verify_sizes", changing)

    assert reason(sound) == " is damaged: model.safetensors has changed since it was written (its SHA-256 differs)"


def test_a_damaged_file_that_is_not_asked_for_is_noticed_too(sound: Path) -> None:
    content = (sound / "state.safetensors").read_bytes()
    put(sound / "state.safetensors", content[:-1] + b"?")

    with pytest.raises(CheckpointError, match=r"state\.safetensors has changed"):
        read_checkpoint(sound, ["model"])


def test_a_checkpoint_that_claims_a_step_must_have_one(sound: Path) -> None:
    assert with_manifest(sound, step=None) == " is damaged: its name says step 1, but its manifest.json says no step"


def test_files_beside_those_of_a_checkpoint_are_ignored(sound: Path) -> None:
    (sound / "notes.txt").write_text("the good one")

    verify(sound)


@pytest.mark.parametrize("file", FILES)
def test_a_link_or_a_pipe_in_the_place_of_a_file_is_refused(sound: Path, file: str) -> None:
    shutil.move(sound / file, sound.parent / "elsewhere")
    (sound / file).symlink_to(sound.parent / "elsewhere")
    assert reason(sound) == f"/{file} is a link, which a checkpoint never has"

    (sound / file).unlink()
    os.mkfifo(sound / file)
    assert reason(sound) == f"/{file} is not a file"

    (sound / file).unlink()
    (sound / file).mkdir()
    assert reason(sound) == f"/{file} is not a file"


def test_a_state_that_asks_for_a_missing_tensor_is_named(sound: Path) -> None:
    resealed(sound, "state.json", b'{"model": {"w": {"$tensor": "model.none"}}}')

    assert reason(sound) == "/state.json is damaged: model.w: the tensor 'model.none' is missing"


@pytest.mark.parametrize("content", [b"[]", b"3", b"{", b"\xff", b'{"a":' * 9999])
def test_a_state_that_is_no_state_is_named(sound: Path, content: bytes) -> None:
    resealed(sound, "state.json", content)

    assert re.match(r"/state.json is damaged| is damaged: state.json is not an object", reason(sound))


def test_the_manifest_is_json_that_a_change_of_layout_damages(sound: Path) -> None:
    manifest = sound / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text())))

    assert reason(sound) == "/manifest.json is damaged: it has changed since it was written"
