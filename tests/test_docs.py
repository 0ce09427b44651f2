"""The documentation is run: every python and console block of README, CONTRIBUTING, docs/ and the skill, page by page.

A page says what its blocks print in two ways:

- a ``text`` block right below a python block is all that this block prints; where the block ends in an error, then
  the error's last lines as Python shows them
- ``print(...)  # 25`` at the start of a line says what that line prints; the comment may stand on the next line

In both, ``...`` stands for anything. Each block is a file ``example.py`` of its own: its lines count from its top. A
block with ``# train.py`` as its first line is not run, but written to the file of that name, for the ``console`` blocks
of the page: their lines with ``$`` are run by bash, and the others are what it prints. All happens in one folder, which
is empty at first.
"""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.fork_server import ForkServer
from tests.support.programs import module, script
from train_manager.telling import errors

ROOT = Path(__file__).parents[1]
SKILL = ROOT / "train_manager" / "skill" / "SKILL.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", SKILL, *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^( *)```(?P<language>python|console|toml(?=\n *# \w+\.toml\n))\n(?P<code>.*?)^\1```\n"
    r"(?:\s*^\1```text\n(?P<shown>.*?)^\1```\n)?",
    re.DOTALL | re.MULTILINE,
)
FILE = re.compile(r"# (\w+\.(?:py|toml))\n")  # the first line of a block that is a file
SECONDS = re.compile(r"(?m)(?<=  ) *\d+\.\d\d(?=(?:  best)?$)")  # the last number of a line of `Log`
NAME_AND_EMAIL = (("NAME", ""), ("EMAIL", "@example.org"))
PRINTED = re.compile(r"^print\(.*\)(?:  |\n)# (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block of a page, and what the page says that it prints; None where it does not say."""

    language: str
    code: str
    shown: str | None


def blocks(page: Path) -> Iterator[Block]:
    """The python, console and toml blocks of a page, also those that are indented in a list."""
    for match in BLOCK.finditer(page.read_text()):
        shown = match["shown"]
        yield Block(
            match["language"], textwrap.dedent(match["code"]), None if shown is None else textwrap.dedent(shown)
        )


def run_block(block: Block, file: Path, namespace: dict[str, Any]) -> str:
    """Run a block from a file, whose source the library can read, and return what a terminal would show."""
    file.parent.mkdir()
    file.write_text(block.code)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(block.code, str(file), "exec", dont_inherit=True), namespace)
        except Exception as error:
            if block.shown is None:
                raise
            printed.write("".join(traceback.format_exception_only(error)))
    return re.sub(r"[^\s(]*example\.py", "example.py", printed.getvalue())


def is_as_shown(shown: str, printed: str, flags: int = 0) -> bool:
    """Whether a text is the one on the page, where ``...`` and the seconds of an epoch stand for anything."""
    shown = SECONDS.sub("...", shown)
    return doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS | flags)


def in_order(shown: list[str], printed: str) -> bool:
    """Whether the lines of a page come in this order among those that were printed."""
    lines = iter(printed.splitlines())
    return all(any(is_as_shown(f"{wanted}\n", f"{line}\n") for line in lines) for wanted in shown)


def commands_in(block: Block) -> Iterator[tuple[str, str]]:
    """Each command of a console block, and what the page shows below it."""
    for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
        command, _, shown = re.sub(r"\\\n", "", part).partition("\n")
        yield command, shown


def run_command(command: str, folder: Path, server: ForkServer) -> str:
    """Run a command as a terminal would, with a git that nobody has set up, and return what it prints.

    What Python runs is a child of the fork server, which has imported torch.
    """
    names = {f"GIT_{role}_{what}": f"somebody{at}" for role in ("AUTHOR", "COMMITTER") for what, at in NAME_AND_EMAIL}
    own = {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "100",  # of tables
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",  # of torchrun's processes
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "TMPDIR": str(folder.parent),  # where a command leaves what it made
        **names,
    }
    program, *arguments = shlex.split(command, comments=True)
    if program in ("python", "train-manager"):
        if program == "python":
            child = server.run(script, *arguments, cwd=folder, **own)
        else:
            child = server.run(module, "train_manager", *arguments, cwd=folder, **own)
        return child.output + child.errors
    # scikit-learn sets some as it is imported, here by another test perhaps; a record tells of them.
    around = {name: value for name, value in os.environ.items() if not name.startswith("KMP_")}
    result = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**around, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return result.stdout


def check_page(page: Path, folder: Path, of_blocks: Path, server: ForkServer) -> None:
    """Require that all blocks of a page print what it shows, in a folder; their files are in another one."""
    namespace: dict[str, Any] = {"__name__": "example"}
    for number, block in enumerate(blocks(page), start=1):
        if block.language == "console":
            for command, wanted in commands_in(block):
                printed = run_command(command, folder, server)
                # Lines with paths of this machine break where its paths end.
                flags = doctest.NORMALIZE_WHITESPACE if " reproduce " in command else 0
                assert is_as_shown(wanted, printed, flags), f"{command}\nprints\n\n{printed}\nnot\n\n{wanted}"
            continue
        if file := FILE.match(block.code):
            (folder / file[1]).write_text(block.code)
            continue
        printed = run_block(block, of_blocks / str(number) / "example.py", namespace)

        if block.shown is not None:
            assert is_as_shown(block.shown, printed), f"{block.code}\nprints\n\n{printed}\nnot\n\n{block.shown}"
        comments = PRINTED.findall(block.code)
        assert in_order(comments, printed), f"{block.code}\nprints\n\n{printed}\nnot {comments}"


def as_parameter(page: Path) -> Any:
    """A page as a test; each command of its console blocks is a process of its own, most of which import torch."""
    has_commands = "```console\n" in page.read_text()
    marks = [pytest.mark.slow, pytest.mark.timeout(300)] if has_commands else []
    # README has some of the commands of one page, another one starts real processes by torchrun; and the programs of
    # the learner train for ten seconds, of which tests/learner shows what they do.
    marks += [pytest.mark.whole] if page.stem in ("run-it-again", "many-ranks", "learner-from-files") else []
    return pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


@pytest.mark.parametrize("page", [as_parameter(page) for page in PAGES])
def test_a_page_prints_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer
) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)

    check_page(page, folder, tmp_path, fork_server)


def test_every_error_has_a_section_of_its_own_and_shows_its_message() -> None:
    page = (ROOT / "docs" / "reference" / "errors-and-cures.md").read_text()
    sections = {part.partition("\n")[0].strip(" `"): part for part in page.split("\n## ")[1:]}

    for error in _error_classes():
        assert error.__name__ in sections, f"docs/reference/errors-and-cures.md has no section `## {error.__name__}`"
        if error is not errors.TrainManagerError:
            assert f"```text\n{error.__module__}.{error.__name__}: " in sections[error.__name__]


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()

    for page in (ROOT / "docs").rglob("*.md"):
        assert page.name == "README.md" or f"]({page.relative_to(ROOT / 'docs')})" in index


def test_no_page_has_a_link_that_leads_nowhere() -> None:
    for page in PAGES[2:]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def _error_classes() -> list[type]:
    found = [value for value in vars(errors).values() if inspect.isclass(value)]
    return [cls for cls in found if issubclass(cls, errors.TrainManagerError)]
