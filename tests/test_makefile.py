"""What `make` says where something is missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_make_pages_fails_without_a_browser_and_names_the_command_that_installs_one(tmp_path: Path) -> None:
    make = shutil.which("make")
    assert make is not None

    done = subprocess.run([make, "pages", "OK="], cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True)

    assert done.returncode != 0
    assert "There is no browser: apt-get install chromium" in done.stderr.splitlines()
