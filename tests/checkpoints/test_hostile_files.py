"""Nothing in a file is run, whoever made it, and none takes all memory.

All files are made first, and opened in one process that forks: see `hostile.py`.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
import struct
from pathlib import Path

import pytest
import torch

from tests.checkpoints.hostile import ROOT, Runs, mutated, opened, program, resealed, torch_file
from tests.checkpoints.states import small_state
from tests.support.fork_server import ForkServer
from tests.support.rotation import share_of
from train_manager.checkpoints.checkpoint import write_checkpoint

FILES = ["manifest.json", "model.safetensors", "state.json", "state.safetensors"]
MUTANTS = int(os.environ.get("MUTANTS", share_of(200)))


def checkpoint(folder: Path, name: str) -> Path:
    return write_checkpoint(folder, name, small_state(1), {})


def pickles(canary: Path) -> dict[str, bytes]:
    """Programs that would make a file, or take all memory, by all ways that a pickle has."""
    touch = f"open({str(canary)!r}, 'w')"
    evil = {
        "system": Runs(os.system, f"touch {canary}"),
        "exec": Runs(exec, touch),
        "eval": Runs(eval, touch),
        "open": Runs(open, str(canary), "w"),
        "getattr": Runs(getattr, Runs(__import__, "builtins"), "exec"),
        "import": Runs(__import__, "antigravity"),
        "hub": Runs(torch.hub.load, "somebody/something", "model"),
        "load": Runs(torch.load, str(canary)),
        "deep": {"weight": torch.nn.Parameter, "more": [({"x": Runs(os.system, f"touch {canary}")},)]},
        "memory": Runs(bytearray, 10**11),
    }
    made = {f"{name}{way}": pickle.dumps(value, way) for name, value in evil.items() for way in (0, 2, 4)}
    system = f"cos\nsystem\n(S'touch {canary}'\ntR.".encode()
    named = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\x94."
    return made | {
        "by hand": system,
        "inst": f"(S'touch {canary}'\nios\nsystem\n.".encode(),
        "obj": f"(cos\nsystem\nS'touch {canary}'\no.".encode(),
        "twice": pickle.dumps({}, 2) + system,
        "extension": b"\x80\x02\x82\x01.",
        "memo": b"\x80\x02}r\xff\xff\xff\x7f.",
        "module named alike": b"\x80\x02ccollections.OrderedDict\nsystem\n.",
        "dotted name": b"\x80\x02ctorch\n_utils._rebuild_tensor_v2.__globals__\n.",
        "newer opcode": named,
        "long string": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b".",
        "empty": b"",
    }


def lying(header: str) -> bytes:
    return struct.pack("<Q", len(header)) + header.encode()


def sizes() -> dict[str, bytes]:
    """Files that claim other sizes than they have."""
    return {
        "storage beyond": torch_file(program(("FloatStorage", "0", 1 << 40)), _0=bytes(8)),
        "storage before": torch_file(program(("FloatStorage", "0", -1)), _0=bytes(8)),
        "storage of another type": torch_file(program(("DoubleStorage", "0", 2)), _0=bytes(8)),
        "storage unknown": torch_file(program(("FloatStorage", "1", 2)), _0=bytes(8)),
        "tensor beyond": torch_file(program(tensor=(0, (1 << 40,), (1,))), _0=bytes(8)),
        "tensor far away": torch_file(program(tensor=(1 << 40, (2,), (1,))), _0=bytes(8)),
        "tensor before": torch_file(program(tensor=(-1, (2,), (1,))), _0=bytes(8)),
        "strides beyond": torch_file(program(tensor=(0, (2,), (1 << 40,))), _0=bytes(8)),
        "header": struct.pack("<Q", 1 << 60) + b"{}",
        "shape": lying('{"x":{"dtype":"F64","shape":[1099511627776],"data_offsets":[0,8796093022208]}}'),
        "objects": lying("[" + "{}," * 3_000_000 + "{}]"),
        "depth": lying('{"a":' * 3_000_000),
        "digits": lying('{"x":' + "9" * 1_000_000 + "}"),
    }


def make_files(folder: Path, canary: Path) -> None:
    """All files of this page; the first word of a name says which test looks at them."""
    for number, (name, content) in enumerate(pickles(canary).items()):
        file = FILES[number % len(FILES)]
        path = checkpoint(folder, f"place {name} as {file}")
        (path / file).write_bytes(content) if file == "manifest.json" else resealed(path, file, content)
        (folder / f"weights {name}.pkl").write_bytes(content)
        (folder / f"weights {name}.pt").write_bytes(torch_file(content))
        (folder / f"weights {name} compressed.pt").write_bytes(torch_file(content, compressed=True))
        (folder / f"weights {name}.safetensors").write_bytes(struct.pack("<Q", len(content)) + content)
    for name, content in sizes().items():
        (folder / f"size {name}").write_bytes(content)
    (folder / "sound").write_bytes(torch_file(program(), _0=struct.pack("<ff", 1, 2)))
    make_links(folder, secret=folder.parent / "secret")
    make_mutants(folder)


def make_links(folder: Path, secret: Path) -> None:
    for number, name in enumerate(["../../secret", str(secret), "..", "state.json/../../../secret"]):
        manifest = checkpoint(folder, f"link {number}") / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"state.json"', json.dumps(name)))
    for file in FILES:
        path = checkpoint(folder, f"link {file}")
        shutil.move(path / file, secret)
        (path / file).symlink_to(secret)


def make_mutants(folder: Path, count: int = MUTANTS) -> None:
    """As if somebody had computed the sums of a manifest anew, so that it is the readers that must hold."""
    chance = random.Random(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    torch.save(model.state_dict(), folder.parent / "weights.pt")
    weights, sound = (folder.parent / "weights.pt").read_bytes(), checkpoint(folder.parent, "sound")
    for number in range(count):
        file = chance.choice(["weights.pt", "data.pkl", *FILES])
        if file == "weights.pt":
            (folder / f"mutant {number}.pt").write_bytes(mutated(weights, chance))
        elif file == "data.pkl":
            (folder / f"mutant {number}.pt").write_bytes(torch_file(mutated(program(), chance), _0=bytes(8)))
        else:
            path = shutil.copytree(sound, folder / f"mutant {number} {file}")
            content = mutated((path / file).read_bytes(), chance)
            (path / file).write_bytes(content) if file == "manifest.json" else resealed(path, file, content)


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("canary") / "canary"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, canary: Path, fork_server: ForkServer) -> dict[str, str]:
    """What came of each file."""
    folder = tmp_path_factory.mktemp("hostile") / "files"
    make_files(folder, canary)
    return opened(folder, fork_server)


def not_refused(outcomes: dict[str, str], kind: str) -> tuple[int, list[str]]:
    """How many files of a kind there were, and those that were not refused with an error of a checkpoint."""
    told = {name: outcome for name, outcome in outcomes.items() if name.startswith(f"{kind} ")}
    return len(told), [f"{name}: {o:.200}" for name, o in told.items() if not o.startswith("CheckpointError: ")]


def test_a_pickle_in_the_place_of_any_file_of_a_checkpoint_is_refused(outcomes: dict[str, str]) -> None:
    assert not_refused(outcomes, "place") == (41, [])


def test_a_pickle_in_a_file_of_weights_is_refused(outcomes: dict[str, str]) -> None:
    assert not_refused(outcomes, "weights") == (164, [])


def test_sizes_that_are_not_those_of_the_file_are_refused_before_they_take_memory(outcomes: dict[str, str]) -> None:
    count, read = not_refused(outcomes, "size")

    assert count == 13
    # The reader of torch 2.6 gives a tensor that reaches beyond its storage: a fault of its own.
    assert read == [] or (torch.__version__.startswith("2.6.") and len(read) == 2)


def test_a_sound_file_made_in_the_same_way_is_read(outcomes: dict[str, str]) -> None:
    assert outcomes["sound"] == "read"


def test_links_and_paths_out_of_a_checkpoint_are_refused(outcomes: dict[str, str]) -> None:
    assert not_refused(outcomes, "link") == (8, [])


def test_a_mutated_file_is_read_or_refused_and_nothing_else_comes_of_it(outcomes: dict[str, str]) -> None:
    count, others = not_refused(outcomes, "mutant")

    assert count == MUTANTS
    assert {outcome.rpartition(": ")[2] for outcome in others} <= {"read"}


def test_nothing_of_all_that_was_run(outcomes: dict[str, str], canary: Path) -> None:
    assert not canary.exists()


def test_the_canary_would_be_there_if_a_pickle_was_run(tmp_path: Path) -> None:
    pickle.loads(pickles(tmp_path / "canary")["open2"]).close()

    assert (tmp_path / "canary").exists()


def test_only_the_file_of_weights_calls_a_loader_that_unpickles() -> None:
    """Others hand bytes to no loader of torch, of numpy or of pickle; this one loads weights only."""
    loaders = re.compile(
        r"\b(torch\.(jit\.|export\.)?load|np\.load|pickle\.loads?|Unpickler|checkpoint\.load|joblib)\("
    )
    library = [*(ROOT / "train_manager").rglob("*.py"), *(ROOT / "extensions").rglob("*.py")]

    found = {path.name for path in library if loaders.search(path.read_text(encoding="utf-8"))}

    shown = {"deployment.py", "export.py"}  # in texts, which say how a file is loaded
    assert found == {"weights_file.py", "process_group.py", *shown}  # process_group: messages of the same program
