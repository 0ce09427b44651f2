"""Build the playground: a page on which the core and the checker run in the browser. `make playground` calls this.

python docs/playground/make_playground.py FOLDER    writes the page into the folder

As a hook of MkDocs it adds what the page loads to the site; the page itself stays as MkDocs has made it.

Nothing that the page loads lies on another host: Python for the browser (Pyodide) comes from npm, is kept in build/npm,
and is copied. If npm is missing the page says so, and has no editor.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
NPM: Final = ROOT / "build" / "npm"
PYODIDE: Final = NPM / "node_modules" / "pyodide"

# What `import train_manager` needs, and no torch.
LIBRARY: Final = (
    "__init__",
    "_version",
    "telling",
    "core",
    "checker",
    "errors",
    "validation",
    "files",
    "rebuilding",
    "schedules",
)
LOADED: Final = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
PAGE: Final = ("playground.css", "playground.js", "python.js", "worker.js")

ALONE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · Train Manager</title>
<link rel="icon" href="data:,">
</head>
<body class="playground-alone">
<main>
<h1>{title}</h1>
{rest}
</main>
</body>
</html>
"""


def install() -> str:
    """Install Pyodide into build/npm if it is not there; return why it could not be done, or nothing."""
    wanted = (HERE / "package-lock.json").read_text()
    kept = NPM / "package-lock.json"
    if PYODIDE.exists() and kept.exists() and kept.read_text() == wanted:
        return ""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is missing; it comes with Node.js"
    NPM.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, NPM)
    done = subprocess.run(
        [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=NPM, capture_output=True, text=True
    )
    if done.returncode:
        kept.unlink()
        return f"npm could not install Pyodide: {(done.stderr or done.stdout).strip()}"
    return ""


def build(folder: Path, left_out: str = "") -> None:
    """Write the page, and beside it what it loads; or, if that is left out, the reason."""
    parts = folder / "parts"
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir(parents=True)
    for name in PAGE:
        shutil.copy(HERE / name, folder)
    html = folder / "index.html"
    if not html.exists() or "playground-alone" in html.read_text():
        html.write_text(alone((HERE / "index.md").read_text()))
    index = {"left_out": "This copy of the page was built without Python."} if left_out else _write(parts)
    (parts / "index.json").write_text(json.dumps(index, indent=1))


def alone(page: str) -> str:
    """Return the page as HTML of its own: a title, and raw HTML below it.

    >>> "<h1>Try it</h1>" in alone("---\\nhide: [toc]\\n---\\n\\n# Try it\\n\\n<p>Here.</p>\\n")
    True
    """
    _, title, rest = re.split(r"^# (.*)$", page, maxsplit=1, flags=re.MULTILINE)
    return ALONE.format(title=title, rest=rest.strip())


def _write(parts: Path) -> dict[str, Any]:
    """Write what the page loads, and return its index: the size of each file, and the examples."""
    for name in LOADED:
        shutil.copy(PYODIDE / name, parts)
    with zipfile.ZipFile(parts / "train_manager.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _library():
            archive.write(path, path.relative_to(ROOT))
        archive.write(HERE / "playground.py", "playground.py")
    sizes = {path.name: path.stat().st_size for path in sorted(parts.iterdir())}
    return {"sizes": sizes, "examples": [_example(path) for path in sorted((HERE / "examples").glob("*.py"))]}


def _library() -> Iterator[Path]:
    for name in LIBRARY:
        path = ROOT / "train_manager" / name
        yield from sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def _example(path: Path) -> dict[str, str]:
    """Return an example as the page lists it: ``2_a_dead_fixture.py`` is called "A dead fixture"."""
    title = path.stem.partition("_")[2].replace("_", " ").capitalize()
    return {"title": title, "program": path.read_text()}


def on_post_build(config: Any) -> None:
    """Add what the page loads to the site that MkDocs has built; MkDocs calls this if the file is one of its hooks."""
    _made(Path(config.site_dir) / "playground")


def _made(folder: Path) -> bool:
    """Build the page and return whether it has an editor; if not, say why."""
    left_out = install()
    build(folder, left_out)
    if left_out:
        print(f"The playground has no editor: {left_out}", file=sys.stderr)
    return not left_out


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__)
        return 2
    folder = Path(arguments[0])
    if _made(folder):
        size = sum(path.stat().st_size for path in (folder / "parts").iterdir())
        print(f"The playground loads {size / 1e6:.1f} MB. To see it: python -m http.server -d {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
