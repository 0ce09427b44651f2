"""Run git so that it asks nothing, changes nothing, runs no other program, and ends in time.

What each command is for stands in the files that ask; here is only how a git process is started and ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final, final

from train_manager.telling.errors import InputError

# Options of every command: take no lock of the user's, run no program, and read paths literally.
_OPTIONS: Final = (
    "--no-optional-locks",
    "--no-replace-objects",
    "--no-pager",
    "--literal-pathspecs",
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.untrackedCache=false"),
    *("-c", "core.quotePath=true"),
)
_ENVIRONMENT: Final = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",  # a git older than GIT_NO_LAZY_FETCH can still not fetch: every protocol is forbidden
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
}
_starting: Final = threading.RLock()
"""Held while GitPython is imported and while a process is made.

Otherwise another thread could fork a worker in between. The worker would inherit the write end of git's pipe, so that
the end of git's output is never seen, or inherit a module that stays half imported.
"""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_starting.release)


class GitTrouble(InputError):
    """Git could not be run, or did not answer; ``what`` is the reason in words."""


@final
@dataclass(frozen=True)
class Git:
    """Git in a folder."""

    folder: Path  # where git starts to look for the repository
    git_folder: Path | None = None  # of our own, for these files; None lets git look for the repository
    seconds: float = 10.0  # after this time a command is ended, with all processes that it has started
    variables: Mapping[str, str] = field(default_factory=dict)  # further ones of the environment

    def given(self, **variables: str) -> Git:
        """Return git in the same folder, with further variables."""
        return replace(self, variables={**self.variables, **variables})

    def reading(self, *objects: Path) -> Git:
        """Return git that reads further folders of objects, and never writes into them."""
        # Git takes these names apart at colons, unless they stand in quotes.
        return self.given(GIT_ALTERNATE_OBJECT_DIRECTORIES=":".join(quote(os.path.abspath(path)) for path in objects))

    def run(self, *arguments: str, feed: bytes | None = None, fine: Collection[int] = (0,)) -> bytes:
        """Return the output of a command.

        Args:
            arguments: the command and its arguments.
            feed: its input; without it, the command finds the end of a file. With nothing in it, as a list of no names,
                there is nothing to do, and git is not started.
            fine: exit codes that do not mean an error.

        Raises:
            GitTrouble: git is not there, ended with another code, or did not answer in time.
        """
        if feed == b"":
            return b""
        status, output, complaint = self.answer(*arguments, feed=feed)
        if status not in fine:
            raise GitTrouble(f"git {arguments[0]} failed: {reason_in(complaint) or f'exit code {status}'}")
        return output

    def answer(self, *arguments: str, feed: bytes | None = None) -> tuple[int, bytes, bytes]:
        """Return the exit code of a command, its output and its error output.

        Raises:
            GitTrouble: git is not there, or did not answer in time.
        """
        # A file in place of a pipe: a worker forked meanwhile would keep the write end, and git would wait for more.
        with tempfile.TemporaryFile() as given:
            given.write(feed or b"")
            given.seek(0)
            handle = self._start(arguments, given)
            process = handle.proc  # GitPython ends the process as soon as `handle` is deleted: keep both names
            try:
                output, complaint = process.communicate(timeout=self.seconds)
            except subprocess.TimeoutExpired:
                raise GitTrouble(f"git did not answer within {self.seconds:g} s") from None
            finally:
                _end(process)
        return process.returncode, output, complaint

    def _start(self, arguments: Sequence[str], given: IO[bytes]) -> Any:
        git = git_module(self.seconds)
        environment = {**_ENVIRONMENT, **self._own_places(), **self.variables}
        program = os.fspath(git.cmd.Git.GIT_PYTHON_GIT_EXECUTABLE or "git")
        command = [*_without_variables(environment), program, *_OPTIONS, "-C", os.fspath(self.folder), *arguments]
        try:
            # Not GitPython's `kill_after_timeout`: it finds children with `ps`, and waits for any that `ps` has missed.
            with _starting:
                return git.cmd.Git(self.folder).execute(
                    command,
                    istream=given,
                    as_process=True,
                    env=environment,
                    shell=False,
                    start_new_session=True,  # no terminal for questions; one process group to kill
                )
        except git.exc.GitCommandNotFound:
            raise GitTrouble("git is not installed") from None

    def _own_places(self) -> dict[str, str]:
        if self.git_folder is None:
            return {}
        places = {"GIT_DIR": os.fspath(self.git_folder), "GIT_WORK_TREE": os.fspath(self.folder)}
        return {**places, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git_module(seconds: float = 10.0) -> Any:
    """Return the module of GitPython.

    Raises:
        GitTrouble: GitPython or git is not there, or git does not answer in time.
    """
    with _starting:
        try:
            if "git" not in sys.modules:
                # GitPython asks for the version as it is imported, and would wait for the answer without a limit.
                program = os.environ.get("GIT_PYTHON_GIT_EXECUTABLE") or "git"
                nothing = subprocess.DEVNULL  # not a pipe: what a killed git has started would hold it open
                subprocess.run(
                    [program, "version"], stdin=nothing, stdout=nothing, stderr=nothing, timeout=seconds, check=False
                )
            import git
            import git.cmd
        except ImportError:
            raise GitTrouble("GitPython is not installed: pip install GitPython") from None
        except OSError:
            raise GitTrouble("git is not installed") from None
        except subprocess.TimeoutExpired:
            raise GitTrouble(f"git did not answer within {seconds:g} s") from None
    return git


def quote(text: str) -> str:
    """Return a text as git's own files want it: in quotes, in one line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def reason_in(complaint: bytes) -> str:
    """Return the first line that says something, without git's ``fatal:``.

    >>> reason_in(b"fatal: not a git repository\\nStop.")
    'not a git repository'
    """
    for line in os.fsdecode(complaint).splitlines():
        if line.strip() and not line.startswith(("hint:", "warning:")):
            return line.removeprefix("fatal: ").removeprefix("error: ").strip()[:200]
    return ""


def _without_variables(environment: Mapping[str, str]) -> list[str]:
    """``env`` in front of the command, if this process has variables that would lead git elsewhere (as in a hook)."""
    # GitPython adds variables to the environment of this process, and cannot take any away.
    unwanted = [name for name in os.environ if name.startswith("GIT_") and name not in environment]
    return ["env", *(part for name in sorted(unwanted) for part in ("-u", name))] if unwanted else []


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        # The whole process group: git may wait for a program that it has started.
        with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):  # only POSIX has groups
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError, ValueError):
                pipe.close()
