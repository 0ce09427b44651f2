"""A repository with a package that trains, for tests that reproduce its runs. Each training is a real process."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.support.fork_server import ForkServer
from tests.support.programs import module

TRAIN: Final = """
import sys
from pathlib import Path
from digits import data, settings
import torch
from torch import nn
from train_manager import TrainManager
from train_manager.extensions import CodeRecord, MetricStore, RunRecord

torch.set_num_threads(int(Path("../threads.txt").read_text()))
if settings.SEED is not None:
    torch.manual_seed(settings.SEED)
model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2))
tm = TrainManager(
    model=model,
    loss=nn.functional.cross_entropy,
    optimizer=lambda parameters: torch.optim.SGD(parameters, lr=settings.RATE),
    train_data=data.batches(),
    eval_data={"valid": data.batches()[:2]},
    epochs=int(sys.argv[1]),
    extensions=[RunRecord(), CodeRecord(), MetricStore()],
    train_dir="../runs/first",
)
tm.train()
print("code of", Path(settings.__file__).parents[2], "trained", tm.step_num, "steps")
"""
FILES: Final = {
    "src/digits/__init__.py": "",
    "src/digits/train.py": TRAIN,
    "src/digits/settings.py": "RATE = 0.1\nSEED = 0\n",
    "experiments/.keep": "",
    "threads.txt": "1",
    ".gitignore": "runs/\n__pycache__/\n*.csv\n",
}
DATA: Final = """
import torch
def batches():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(40, 2, generator=generator)
    return list(zip(inputs.split(16), (inputs.sum(dim=1) > 1).long().split(16)))
"""
READS_A_FILE: Final = "from pathlib import Path\nPath('../seed.csv').read_text()\n" + DATA
CLEAN: Final = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "OMP_NUM_THREADS": "1"}
AUTHOR: Final = ["-c", "user.name=a", "-c", "user.email=a@example.org"]


class Project:
    """A repository with a package that trains, started from a subfolder as ``python -m digits.train``.

    Its settings are changed, and its data are a new file: neither is committed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.train_dir = root / "runs" / "first"

    def make(self, *, settings: str = "RATE = 0.25  # changed\nSEED = 0\n", data: str = DATA) -> Project:
        """Write the files."""
        for name, content in FILES.items():
            self.write(name, content)
        self.git("init", "-q", "-b", "main")
        self.git("add", "-A")
        self.git(*AUTHOR, "commit", "-q", "-m", "First")
        self.write("src/digits/settings.py", settings)
        self.write("src/digits/data.py", data)
        return self

    def copy(self, root: Path) -> Project:
        """Return a copy whose record says that it was recorded there."""
        copy = Project(root)
        shutil.copytree(self.root, root)
        copy.edit_record(str(self.root), str(root))
        return copy

    def edit_record(self, old: str, new: str) -> None:
        """Replace a text in what is recorded, as if it had been recorded so."""
        texts = {
            path: path.read_text() for path in [*self.train_dir.glob("run-*.json"), *self.train_dir.glob("code/*.json")]
        }
        assert any(old in text for text in texts.values())
        for path, text in texts.items():
            before = path.stat()
            path.write_text(text.replace(old, new))
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def change(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def write(self, name: str, content: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self.root, env={**os.environ, **CLEAN}, check=True, capture_output=True, text=True
        )
        return done.stdout

    def train(self, server: ForkServer, epochs: int = 3, code: int = 0) -> None:
        variables = {**CLEAN, "PYTHONPATH": str(self.root / "src")}
        done = server.run(module, "digits.train", str(epochs), cwd=self.root / "experiments", **variables)
        assert done.code == code, done.errors

    def content(self) -> dict[str, tuple[bytes, int]]:
        """Return all files of the repository, those of git too, with the times of their last change."""
        files = [path for path in self.root.rglob("*") if path.is_file()]
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
