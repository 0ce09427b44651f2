"""Repositories whose settings name programs: each leaves a file where git has run it."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.runs.code import repositories

FIXED: Final = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
    "GIT_TERMINAL_PROMPT": "0",
}
HOOKS: Final = (
    *("post-checkout", "post-index-change", "post-commit", "pre-commit", "post-merge", "reference-transaction"),
    *("fsmonitor-watchman", "pre-auto-gc", "post-rewrite", "post-applypatch", "applypatch-msg", "update"),
)
SIGNED: Final = """\
tree {tree}
author Ada <ada@example.com> 1700000000 +0000
committer Ada <ada@example.com> 1700000000 +0000
gpgsig -----BEGIN PGP SIGNATURE-----
 iQ
 -----END PGP SIGNATURE-----

signed
"""


@dataclass(frozen=True)
class World:
    """A repository with a changed file, a deleted one and a new one, and the place where programs leave their mark."""

    repository: Path
    marks: Path
    home: Path

    def program(self, name: str, then: str = "cat") -> str:
        """Write a program that leaves a mark, and return its path."""
        path = self.marks.parent / "programs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho ran >>{self.marks}/{name}\n{then}\n")
        path.chmod(0o755)
        return str(path)

    def ran(self) -> list[str]:
        """Return the names of the programs that have run since this was last asked."""
        names = sorted(path.name for path in self.marks.iterdir())
        for name in names:
            (self.marks / name).unlink()
        return names

    def plain(self, *arguments: str, feed: str = "", folder: Path | None = None, terminal: bool = False) -> None:
        """Run git as a user does, without any care; how it ends is not looked at."""
        command = ["git", "-C", str(folder or self.repository), *arguments]
        environment = {**os.environ, **FIXED, "HOME": str(self.home)}
        if not terminal:
            subprocess.run(command, input=feed, env=environment, capture_output=True, text=True, check=False)
            return
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "rb"), os.fdopen(theirs, "wb"):
            subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment, check=False
            )


def git(folder: Path, *arguments: str, feed: str | None = None) -> str:
    """Run git to make a repository; an error is an error."""
    found = repositories.git(folder, *arguments, feed=None if feed is None else feed.encode())
    return found.decode().strip()


def new_world(folder: Path) -> World:
    """Make the repository, with a commit and without anything hostile."""
    world = World(folder / "repository", folder / "marks", folder / "home")
    for path in (world.repository, world.marks, world.home):
        path.mkdir(parents=True)
    git(world.repository, "init", "-q", "-b", "main")
    for name in ("train.txt", "gone.txt", "data.bin"):
        (world.repository / name).write_bytes(f"{name}\n".encode() * 20)
    git(world.repository, "add", "-A")
    git(world.repository, "commit", "-qm", "first")
    (world.repository / "train.txt").write_text("changed\n")
    (world.repository / "gone.txt").unlink()
    (world.repository / "new.txt").write_text("new\n")
    return world


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the working tree, without git folders."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }


# ---- what may be planted ---------------------------------------------------------------------------------------------


def setting(world: World, name: str, value: str, *more: str) -> None:
    git(world.repository, "config", *more, name, value)


def attribute(world: World, text: str) -> None:
    (world.repository / ".gitattributes").write_text(f"*.txt {text}\n")


def plant_settings(*names: str, attributes: str = "", then: str = "cat") -> Callable[[World], None]:
    """Return what plants a program in settings."""

    def plant(world: World) -> None:
        for name in names:
            setting(world, name, world.program("mark", then))
        if attributes:
            attribute(world, attributes)

    return plant


def plant_required_process(world: World) -> None:
    plant_settings("filter.x.process", "filter.x.clean", attributes="filter=x")(world)
    setting(world, "filter.x.required", "true")


def plant_smudge(world: World) -> None:
    plant_settings("filter.x.smudge", attributes="filter=x")(world)
    setting(world, "filter.x.required", "true")


def write_hooks(world: World, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in HOOKS:
        (folder / name).write_bytes(Path(world.program("mark")).read_bytes())
        (folder / name).chmod(0o755)


def plant_merge(world: World) -> None:
    (world.repository / "train.txt").write_text("other\n")
    git(world.repository, "commit", "-qam", "other")
    git(world.repository, "branch", "other")
    git(world.repository, "reset", "-q", "--hard", "HEAD~1")
    (world.repository / "train.txt").write_text("changed\n")
    plant_settings("merge.x.driver", attributes="merge=x")(world)


def plant_hooks(world: World) -> None:
    write_hooks(world, world.repository / ".git" / "hooks")


def plant_hooks_path(world: World) -> None:
    write_hooks(world, world.marks.parent / "hooks")
    setting(world, "core.hooksPath", str(world.marks.parent / "hooks"))


def plant_ssh(world: World) -> None:
    plant_settings("core.sshCommand", then="exit 1")(world)
    setting(world, "remote.origin.url", "ssh://nowhere.invalid/x.git")
    setting(world, "remote.origin.promisor", "true")  # objects that are absent would be fetched


def plant_proxy(world: World) -> None:
    plant_settings("core.gitProxy")(world)
    setting(world, "remote.origin.url", "git://nowhere.invalid/x.git")


def plant_signature(world: World) -> None:
    tree = git(world.repository, "rev-parse", "HEAD^{tree}")
    commit = git(world.repository, "hash-object", "-t", "commit", "-w", "--stdin", feed=SIGNED.format(tree=tree))
    git(world.repository, "update-ref", "refs/heads/main", commit)
    plant_settings("gpg.program")(world)
    setting(world, "log.showSignature", "true")


def plant_alternates(world: World) -> None:
    other = world.marks.parent / "other"
    git(world.marks.parent, "clone", "-q", "--no-local", str(world.repository), str(other))
    git(other, "commit", "-qm", "second", "--allow-empty")
    alternates = world.repository / ".git" / "objects" / "info" / "alternates"
    alternates.write_text(f"{other / '.git' / 'objects'}\n")
    plant_settings("core.alternateRefsCommand")(world)


def plant_include(world: World) -> None:
    included = world.marks.parent / "included"
    git(world.repository, "config", "-f", str(included), "core.fsmonitor", world.program("mark"))
    setting(world, "include.path", str(included))


def plant_alias(world: World) -> None:
    for name in ("x", "rev-parse", "diff-files", "ls-files"):  # those of git itself cannot be replaced
        setting(world, f"alias.{name}", f"!{world.program('mark')}")


def plant_submodule(world: World) -> None:
    inner = world.repository / "inner"
    inner.mkdir()
    git(inner, "init", "-q", "-b", "main")
    (inner / "own.txt").write_text("own\n")
    git(inner, "add", "-A")
    git(inner, "commit", "-qm", "inner")
    git(world.repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", "./inner", "inner")
    git(world.repository, "commit", "-qm", "with a submodule")
    (inner / "own.txt").write_text("changed\n")
    for name in ("core.fsmonitor", "diff.external", "filter.x.clean", "filter.x.process", "diff.x.textconv"):
        git(inner, "config", name, world.program("mark"))
    (inner / ".gitattributes").write_text("*.txt filter=x diff=x\n")
    write_hooks(world, inner / ".git" / "hooks")


def plant_update_command(world: World) -> None:
    plant_submodule(world)
    git(world.repository, "config", "submodule.inner.update", f"!{world.program('mark')}")
    git(world.repository / "inner", "config", "--unset-all", "core.fsmonitor")


def plant_home(world: World) -> None:
    (world.home / ".gitconfig").write_text(f"[core]\n\tfsmonitor = {world.program('mark')}\n")


def plant_xdg(world: World) -> None:
    (world.home / ".config" / "git").mkdir(parents=True)
    (world.home / ".config" / "git" / "config").write_text(f"[core]\n\tfsmonitor = {world.program('mark')}\n")


def plant_pack_hook(world: World) -> None:  # git honours it in settings of the user only
    (world.home / ".gitconfig").write_text(f"[uploadpack]\n\tpackObjectsHook = {world.program('mark')}\n")


def plant_lfs(world: World) -> None:
    (world.repository / ".lfsconfig").write_text(
        f'[lfs]\n\turl = https://nowhere.invalid/\n[lfs "customtransfer.x"]\n\tpath = {world.program("mark")}\n'
    )
    plant_settings("filter.lfs.clean", "filter.lfs.smudge", "filter.lfs.process", attributes="filter=lfs")(world)
    setting(world, "filter.lfs.required", "true")


def nothing(world: World) -> None:
    """Plant nothing: the variable of the environment is the plant."""


@dataclass(frozen=True)
class Plant:
    """What is planted, and how a user's git would run it.

    Args:
        plant: plants it.
        proof: arguments of git, each of a command.
        feed: what the last command reads.
        variables: of the environment; ``{program}`` stands for a program.
        terminal: whether git must believe that it writes to a terminal.
    """

    plant: Callable[[World], None]
    proof: tuple[tuple[str, ...], ...]
    feed: str = ""
    variables: Mapping[str, str] | None = None
    terminal: bool = False

    def environment(self, world: World) -> dict[str, str]:
        program = world.program("mark", then="exit 1") if self.variables else ""
        return {name: text.format(program=program) for name, text in (self.variables or {}).items()}


STATUS: Final = (("status",),)
DIFF: Final = (("diff",),)
CONFIG_IN_VARIABLES: Final = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "{program}",
}
PLANTS: Final = {
    "core.fsmonitor": Plant(plant_settings("core.fsmonitor"), STATUS),
    "diff.external": Plant(plant_settings("diff.external"), DIFF),
    "diff.x.command": Plant(plant_settings("diff.x.command", attributes="diff=x"), DIFF),
    "diff.x.textconv": Plant(plant_settings("diff.x.textconv", attributes="diff=x"), DIFF),
    "filter.x.clean": Plant(plant_settings("filter.x.clean", attributes="filter=x"), DIFF),
    "filter.x.smudge": Plant(plant_smudge, (("checkout", "--", "gone.txt"),)),
    "filter.x.process": Plant(plant_required_process, DIFF),
    "merge.x.driver": Plant(plant_merge, (("checkout", "-m", "other"),)),
    "hooks": Plant(plant_hooks, (("checkout", "-q", "HEAD"),)),
    "core.hooksPath": Plant(plant_hooks_path, (("checkout", "-q", "HEAD"),)),
    "core.pager": Plant(plant_settings("core.pager"), (("log",),), terminal=True),
    "core.sshCommand": Plant(plant_ssh, (("ls-remote", "origin"),)),
    "core.gitProxy": Plant(plant_proxy, (("ls-remote", "origin"),)),
    "core.editor": Plant(plant_settings("core.editor"), (("commit", "--allow-empty"),)),
    "gpg.program": Plant(plant_signature, (("log", "-1"),)),
    "credential.helper": Plant(
        plant_settings("credential.helper"), (("credential", "fill"),), feed="protocol=https\nhost=x.invalid\n\n"
    ),
    "core.alternateRefsCommand": Plant(plant_alternates, (("fetch", "../other"),)),
    "uploadpack.packObjectsHook": Plant(plant_pack_hook, (("clone", "--no-local", ".", "../cloned"),)),
    "include.path": Plant(plant_include, STATUS),
    "alias": Plant(plant_alias, (("x",),)),
    "a submodule's settings": Plant(plant_submodule, STATUS),
    "submodule.inner.update": Plant(
        plant_update_command, (("-C", "inner", "commit", "-q", "--allow-empty", "-m", "x"), ("submodule", "update"))
    ),
    ".gitconfig": Plant(plant_home, STATUS),
    ".config/git/config": Plant(plant_xdg, STATUS),
    ".lfsconfig": Plant(plant_lfs, DIFF),
    "GIT_EXTERNAL_DIFF": Plant(nothing, DIFF, variables={"GIT_EXTERNAL_DIFF": "{program}"}),
    "GIT_SSH_COMMAND": Plant(
        nothing, (("ls-remote", "ssh://nowhere.invalid/x"),), variables={"GIT_SSH_COMMAND": "{program}"}
    ),
    "GIT_PAGER": Plant(nothing, (("log",),), variables={"GIT_PAGER": "{program}"}, terminal=True),
    "GIT_CONFIG_COUNT": Plant(nothing, STATUS, variables=CONFIG_IN_VARIABLES),
    "GIT_CONFIG_PARAMETERS": Plant(
        nothing, STATUS, variables={"GIT_CONFIG_PARAMETERS": "'core.fsmonitor'='{program}'"}
    ),
}
