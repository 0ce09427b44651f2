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
from collections.abc import Collection, Iterable, Mapping, Sequence
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
_NO_CONFIGURATION: Final = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
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
class Git:
    """Git in a folder.

    Args:
        folder: where git starts to look for the repository.
        git_folder: of our own, for these files; None lets git look for the repository and its settings.
        seconds: after this time a command is ended, with all processes that it has started.
    """

    def __init__(self, folder: Path, *, git_folder: Path | None = None, seconds: float = 10.0) -> None:
        self.folder, self.git_folder, self.seconds = folder, git_folder, seconds
        self._environment = dict(_ENVIRONMENT)
        if git_folder is not None:
            places = {"GIT_DIR": os.fspath(git_folder), "GIT_WORK_TREE": os.fspath(folder)}
            self._environment |= {**_NO_CONFIGURATION, **places}

    def run(
        self, *arguments: str, feed: bytes | None = None, fine: Collection[int] = (0,), changes: Mapping[str, str] = {}
    ) -> bytes:
        """Return the output of a command.

        Args:
            arguments: the command and its arguments.
            feed: what it reads; without it, it finds the end of a file.
            fine: exit codes that do not mean an error.
            changes: variables for this command alone.

        Raises:
            GitTrouble: git is not there, ended with another code, or did not answer in time.
        """
        status, output, complaint = self.answer(*arguments, feed=feed, changes=changes)
        if status not in fine:
            raise GitTrouble(f"git {arguments[0]} failed: {first_line(complaint) or f'exit code {status}'}")
        return output

    def answer(
        self, *arguments: str, feed: bytes | None = None, changes: Mapping[str, str] = {}
    ) -> tuple[int, bytes, bytes]:
        """Return the exit code of a command, its output and its error output.

        Raises:
            GitTrouble: git is not there, or did not answer in time.
        """
        # A file in place of a pipe: a worker forked meanwhile would keep the write end, and git would wait for more.
        with tempfile.TemporaryFile() as given:
            given.write(feed or b"")
            given.seek(0)
            handle = self._start(arguments, given, {**self._environment, **changes})
            process = handle.proc  # GitPython ends the process as soon as `handle` is deleted: keep both names
            try:
                output, complaint = process.communicate(timeout=self.seconds)
            except subprocess.TimeoutExpired:
                raise GitTrouble(f"git did not answer within {self.seconds:g} s") from None
            finally:
                _end(process)
        return process.returncode, output, complaint

    def _start(self, arguments: Sequence[str], given: IO[bytes], environment: Mapping[str, str]) -> Any:
        git = git_module(self.seconds)
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


def git_module(seconds: float = 10.0) -> Any:
    """Return the module of GitPython, which starts ``git version`` as it is imported.

    Raises:
        GitTrouble: GitPython or git is not there, or git does not answer in time.
    """
    # GitPython runs `git version` as it is imported, without a time limit.
    if "git" not in sys.modules:
        _require_an_answer(seconds)
    with _starting:
        try:
            import git
            import git.cmd
        except ImportError:
            raise GitTrouble("GitPython is not installed: pip install GitPython") from None
    return git


def _require_an_answer(seconds: float) -> None:
    """Ask for the version with a time limit, before GitPython asks without one."""
    program = os.environ.get("GIT_PYTHON_GIT_EXECUTABLE") or "git"
    try:
        with _starting:
            subprocess.run(
                [program, "version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # not a pipe: what a killed git has started would hold it open
                stderr=subprocess.DEVNULL,
                timeout=seconds,
                check=False,
            )
    except OSError:
        raise GitTrouble("git is not installed") from None
    except subprocess.TimeoutExpired:
        raise GitTrouble(f"git did not answer within {seconds:g} s") from None


def sizes_of(git: Git, blobs: Iterable[str], reads: Mapping[str, str] = {}) -> dict[str, int]:
    """Return the sizes of blobs, without the blobs that are missing."""
    output = git.run("cat-file", "--batch-check", feed="".join(f"{blob}\n" for blob in blobs).encode(), changes=reads)
    lines = map(str.split, output.decode().splitlines())
    return {name: int(size[0]) for name, _, *size in lines if size}


def contents_of(git: Git, blobs: Iterable[str], reads: Mapping[str, str] = {}) -> dict[str, bytes]:
    """Return the contents of blobs, none of which may be missing."""
    blobs, found, start = [*blobs], {}, 0
    # One process for all blobs. Each answer is a line "<blob> blob <size>", the content and a newline.
    output = git.run("cat-file", "--batch", feed="".join(f"{blob}\n" for blob in blobs).encode(), changes=reads)
    for blob in blobs:
        end = output.index(b"\n", start) + 1
        size = int(output[start:end].split()[2])
        found[blob], start = output[end : end + size], end + size + 1
    return found


def first_line(complaint: bytes) -> str:
    """Return the first line that says something, without git's ``fatal:``.

    >>> first_line(b"fatal: not a git repository\\nStop.")
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
