"""A hash that is computed beside the writing: the same one, in a thread that ends."""

from __future__ import annotations

import hashlib
import random
import threading
from pathlib import Path

import pytest

from train_manager import CheckpointError
from train_manager.checkpoints import hash_beside, hashed_file
from train_manager.checkpoints.hash_beside import PIECE, HashBeside
from train_manager.checkpoints.hashed_file import HashedFile

MIXED = [10, PIECE, 3, PIECE // 2, PIECE // 2, 2 * PIECE, 7, PIECE - 1, 1, 5]


def pieces(sizes: list[int]) -> list[bytes]:
    chance = random.Random(0)
    return [chance.randbytes(size) for size in sizes]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("hash")]


def test_it_is_that_of_all_pieces_in_their_order() -> None:
    beside, given = HashBeside(), pieces(MIXED)
    for piece in given:
        beside.update(piece)

    assert beside.hexdigest() == hashlib.sha256(b"".join(given)).hexdigest()
    beside.close(is_wanted=True)


def test_small_pieces_start_no_thread() -> None:
    beside = HashBeside()
    for piece in pieces([1000] * 100):
        beside.update(piece)

    assert threads() == []
    assert len(beside.hexdigest()) == 64


def test_a_large_piece_is_hashed_in_a_thread_that_ends_with_the_file(tmp_path: Path) -> None:
    (piece,) = pieces([3 * PIECE])
    with HashedFile(tmp_path / "file") as file:
        file.write(piece)
        assert threads() == ["hash_0"]

    assert threads() == []
    assert file.sha256 == hashlib.sha256(piece).hexdigest() == hashed_file.hash_of(tmp_path / "file")


def test_no_more_waits_than_memory_is_meant_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_beside, "WAITING", 3 * PIECE)
    beside, given = HashBeside(), pieces([PIECE] * 10)
    waiting = []
    for piece in given:
        beside.update(piece)
        waiting.append(len(beside._waiting))

    assert max(waiting) <= 3
    assert beside.hexdigest() == hashlib.sha256(b"".join(given)).hexdigest()
    beside.close(is_wanted=True)


def test_an_error_while_it_is_written_ends_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, content: memoryview) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("train_manager.checkpoints.hashed_file.os.write", full)
    with pytest.raises(CheckpointError, match="No space left"), HashedFile(tmp_path / "file") as file:
        file.write(bytes(2 * PIECE))

    assert threads() == []
