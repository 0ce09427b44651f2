"""Files that somebody made to do harm, and a process that opens them.

`python -m tests.checkpoints.hostile FOLDER` opens each file and each checkpoint in a folder, in children with little
memory, and prints what came of each as JSON: "read", the class of an error with its message, or "died".
"""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import resource
import struct
import sys
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from tests.support.fork_server import ForkServer
from tests.support.programs import module
from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.checkpoints.manifest import render_manifest
from train_manager.checkpoints.verification import verify
from train_manager.checkpoints.weights_file import read_weights

ROOT = Path(__file__).parents[2]
MEMORY = 1 << 31  # bytes that a child may take beside what it has
BATCH = 25


class Runs:
    """An object that runs a function when it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def resealed(path: Path, file: str, content: bytes) -> None:
    """Put other bytes into a checkpoint's file, with a manifest that agrees: what somebody may do on purpose."""
    found = verify(path)
    (path / file).write_bytes(content)
    found["files"][file] = {"size": len(content), "sha256": sha256(content).hexdigest()}
    (path / "manifest.json").write_bytes(render_manifest(found))


def torch_file(program: bytes, *, compressed: bool = False, **entries: bytes) -> bytes:
    """A file as torch.save makes it, with any pickle in it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/version", b"3\n")
        archive.writestr("archive/byteorder", b"little")
        for name, content in entries.items():
            archive.writestr(f"archive/data/{name.removeprefix('_')}", content)
    return file.getvalue()


def program(storage: Any = None, tensor: Any = None) -> bytes:
    """The pickle of a dict with one tensor, with another storage or other sizes than its file has."""
    kind, key, count = storage or ("FloatStorage", "0", 2)
    offset, size, stride = tensor or (0, (2,), (1,))

    def number(value: int) -> bytes:
        return pickle.dumps(value, 2)[2:-1]

    def numbers(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(number, values)) + b"t"

    def word(text: str) -> bytes:
        return b"X" + struct.pack("<I", len(text)) + text.encode()

    stored = b"(" + word("storage") + f"ctorch\n{kind}\n".encode() + word(key) + word("cpu") + number(count) + b"tQ"
    made = b"ctorch._utils\n_rebuild_tensor_v2\n(" + stored + number(offset) + numbers(size) + numbers(stride)
    return b"\x80\x02}" + word("weight") + made + b"\x89ccollections\nOrderedDict\n)RtRs."


def mutated(content: bytes, chance: random.Random) -> bytes:
    """Some bytes of a file changed, left out or doubled."""
    changed = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 5, 20])):
        place = chance.randrange(len(changed))
        match chance.randrange(4):
            case 0:
                changed[place] ^= 1 << chance.randrange(8)
            case 1:
                changed[place] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, ord("R"), ord("."), ord("c"), ord("9")])
            case 2:
                del changed[place : place + chance.randrange(1, 9)]
            case 3:
                changed[place:place] = changed[place : place + chance.randrange(1, 9)]
    return bytes(changed)


def opened(folder: Path, server: ForkServer) -> dict[str, str]:
    """What came of each file and each checkpoint in a folder, each opened in a process that may die of it."""
    done = server.run(module, "tests.checkpoints.hostile", str(folder))
    assert done.code == 0, done.errors
    found: dict[str, str] = json.loads(done.output)
    return found


def _outcome(path: Path) -> str:
    try:
        if (path / "manifest.json").exists():
            read_checkpoint(path)
        read_weights(path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "read"


def _outcomes(paths: list[Path]) -> Iterator[tuple[str, str]]:
    """One child opens many; if it dies, the next one continues after the file that it died of."""
    while paths:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
            for path in paths[:BATCH]:
                os.write(writer, json.dumps([path.name, _outcome(path)]).encode() + b"\n")
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as lines:
            found = [tuple(json.loads(line)) for line in lines]
        _, status = os.waitpid(child, 0)
        yield from found
        if status:
            yield paths[len(found)].name, f"died: {status}"
        paths = paths[len(found) + bool(status) :]


if __name__ == "__main__":
    torch.zeros(1)  # all of torch is loaded before the first fork
    print(json.dumps(dict(_outcomes(sorted(Path(sys.argv[1]).iterdir())))))
