"""Record the code of a run: each repository with its commit, and a tree of the files as they are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, final

from train_manager.files.atomic import replace_file
from train_manager.files.secrets import reason_to_leave_out
from train_manager.runs.code.facts import Repository, find_repository
from train_manager.runs.code.git import GitTrouble, git_module
from train_manager.runs.code.git_folder import git_folder
from train_manager.runs.code.left_out import OF_A_TRAINING, Limits, outputs_of_trainings
from train_manager.runs.code.record import (
    SCHEMA,
    VERSION,
    copy_of,
    leave_out,
    name_of,
    new_entry,
    note,
    write_code_record,
)
from train_manager.runs.code.snapshot import CodeSnapshot
from train_manager.runs.code.store import CODE, blob_of, make_store, pack_into_store, sizes_in_store, store_of
from train_manager.runs.code.working_tree import WorkingTree, look_at
from train_manager.telling.errors import InputError

USUAL: Final = Limits()
_SETTINGS: Final = {
    "core.fsync": "none,pack,pack-metadata",  # what is not packed yet lies in a temporary folder
    "core.looseCompression": "1",
    "core.bigFileThreshold": "100g",  # a larger file would be packed at once, and so not be packed into the store
}
# With a wrong value of these git would find a difference in every file.
_OF_THE_USER: Final = {"core.filemode": "true", "core.ignorecase": "false", "core.precomposeunicode": "false"}


def take_code_record(
    folder: Path,
    train_dir: Path,
    run_id: str,
    *,
    limits: Limits = USUAL,
    others: Mapping[str, Path] = {},
    cells: Sequence[str] = (),
    loaded: Sequence[Path] = (),
    tell: Callable[[str], object] = lambda text: None,
) -> dict[str, Any]:
    """Write the code record of a run into ``code/<run_id>.json``, and return it.

    Nothing in the repository is touched, and no program that its settings name is run. What cannot be recorded is
    said in the record: it does not fail the training.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "train.py").write_text("print('hello')")
    >>> record = take_code_record(folder, folder / "runs", "0123456789abcdef", loaded=[folder / "train.py"])
    >>> [file["path"] for file in record["repositories"][0]["files"]]
    ['train.py']

    Args:
        folder: where the code is; the repository that holds it is recorded.
        train_dir: the folder of the training.
        run_id: what the run is called.
        limits: how much may be kept.
        others: further folders whose repositories are recorded, by the names of their packages.
        cells: the cells of a notebook that ran, in their order.
        loaded: files that ran; they are kept where the repository does not have them.
        tell: gets the warning that no remote has the commit.
    """
    taking = _Taking(folder.absolute(), train_dir.absolute(), run_id, loaded, limits, tell)
    taking.take(others)
    reason = "; ".join(dict.fromkeys(taking.reasons)) or None
    record = {"schema": SCHEMA, "version": VERSION, "run": run_id, "reason": reason}
    record |= {"repositories": taking.entries, "notebook": None}
    write_code_record(record, train_dir, cells)
    return record


@final
@dataclass
class _Taking:
    folder: Path  # holds the code
    train_dir: Path
    run_id: str
    loaded: Sequence[Path]  # the files that ran
    limits: Limits
    tell: Callable[[str], object]
    entries: list[dict[str, Any]] = field(default_factory=list)  # of the record, one for each repository
    reasons: list[str] = field(default_factory=list)  # why something is not recorded

    def take(self, others: Mapping[str, Path]) -> None:
        """Record the repository of the code, and the repositories of other packages."""
        with self._noting_reasons():
            self._record(find_repository(self.folder, self.limits.seconds))
        if not self.entries and (ran := _below(self.folder, self.loaded)):
            self.entries.append(new_entry(self.folder))
            self._keep(None, ran)
        for name, path in others.items():
            with self._noting_reasons(name):
                found = find_repository(path.absolute(), self.limits.seconds)
                if os.path.realpath(found.root) not in {os.path.realpath(entry["path"]) for entry in self.entries}:
                    self._record(found, name, package=name)

    @contextlib.contextmanager
    def _noting_reasons(self, of: str | None = None) -> Iterator[None]:
        try:
            yield
        except (GitTrouble, OSError) as trouble:
            self.reasons.append(f"{of}: {in_words(trouble)}" if of else in_words(trouble))

    def _record(self, repository: Repository, inside: str | None = None, *, package: str | None = None) -> None:
        """Record a repository and the repositories inside of it: submodules, and others that its commit lacks."""
        entry = new_entry(repository.root, inside, repository)
        if package is not None:
            entry["package"] = package
        # Before its submodules, which append their entries after it: the first entry is the repository of the code.
        self.entries.append(entry)
        if entry["pushed"] is False:
            what = f"no remote of {repository.root} has its commit {repository.commit:.10}"
            self.tell(f"{what}, without which nobody else can run this again: push it")
        tree = self._keep(repository, _below(repository.root, self.loaded))
        entry["submodules"] = tree.submodules
        for path in sorted({*tree.submodules, *tree.nested}):
            with self._noting_reasons(path):
                if (found := _repository_in(repository, path)) is not None:
                    self._record(found, f"{inside}/{path}" if inside else path, package=package)

    def _keep(self, repository: Repository | None, ran: Sequence[str]) -> WorkingTree:
        """Put the files of the last entry into the store; if git cannot, copy the files that ran."""
        entry, name = self.entries[-1], name_of(self.run_id, len(self.entries) - 1)
        with self._noting_reasons(entry["inside"]):  # the entry still has the commit
            return self._store(entry, name, repository, ran)
        entry.update(tree=None, files=[], left_out=[])
        self._copy(entry, name, ran)
        return WorkingTree()

    def _store(
        self, entry: dict[str, Any], name: str, repository: Repository | None, ran: Sequence[str]
    ) -> WorkingTree:
        git_module(self.limits.seconds)  # before anything is made: without git there is no store
        store, settings = store_of(self.train_dir, entry["format"]), dict(_SETTINGS)
        make_store(store, entry["format"])
        if repository is not None:
            settings |= {key: repository.settings.get(key, usual) for key, usual in _OF_THE_USER.items()}
        with git_folder(Path(entry["path"]), entry["format"], settings, self.limits.seconds) as own:
            git = reads = own.reading(store / "objects")
            tree, names = WorkingTree(), iter(ran)
            if repository is not None:
                reads = own.reading(store / "objects", repository.objects)
                tree = look_at(repository, reads, self.limits.file)
                names = chain(tree.changed, self._new_files(entry, tree, ran))
            snapshot = CodeSnapshot(git, tree, entry, self.limits, self._kept(), sizes_in_store(own, store))
            snapshot.keep(names)
            entry["tree"] = pack_into_store(git, store, name)
            with contextlib.suppress(GitTrouble):  # the tree is there, and nothing is restored from the text
                if text := snapshot.differences(reads):
                    replace_file(self.train_dir / CODE / f"{name}.diff", text)
        return tree

    def _kept(self) -> int:
        """Return the bytes so far, of all repositories."""
        return sum(file["size"] for entry in self.entries for file in entry["files"])

    def _new_files(self, entry: dict[str, Any], tree: WorkingTree, ran: Iterable[str]) -> Iterator[str]:
        """Yield the new files to keep: the files that ran, also if git ignores them, and others within the limits."""
        # A file of a submodule or a nested repository belongs to the record of that repository.
        inner, root = tuple(f"{path}/" for path in (*tree.submodules, *tree.nested)), Path(entry["path"])
        ran = {name for name in ran if not name.startswith(inner)}
        outputs = outputs_of_trainings(root, {*tree.new, *ran}, self.train_dir, self.folder)
        for folder in sorted({*outputs.values()}):
            leave_out(entry, f"{folder}/", OF_A_TRAINING)
        yield from ran - outputs.keys()
        new = tree.new - outputs.keys() - ran
        if _below(root, [Path(os.path.expanduser("~"))]):
            beside = f"{next(iter(_below(root, [self.folder])), '.')}/"
            if any(not name.startswith(beside) for name in new):
                leave_out(entry, "./", "of the new files in a home folder only those beside the code are kept")
            new = frozenset(name for name in new if name.startswith(beside))
        if len(new) > self.limits.names:
            leave_out(entry, "./", f"{len(new)} new files are too many to keep")
        else:
            yield from new

    def _copy(self, entry: dict[str, Any], name: str, ran: Sequence[str]) -> None:
        """Copy the files that ran, because git cannot store them."""
        for path in ran:
            with contextlib.suppress(OSError):
                content = Path(entry["path"], path).read_bytes()
                why = self.limits.reason_against(len(content), self._kept()) or reason_to_leave_out(path, content)
                if why is not None:
                    leave_out(entry, path, why)
                    continue
                replace_file(copy_of(self.train_dir, name) / path, content)
                note(entry, path, "added", "100644", blob_of(content), len(content))


def _repository_in(outer: Repository, path: str) -> Repository | None:
    """Return the repository in a folder; None if it is a submodule that is not checked out.

    Raises:
        GitTrouble: it cannot be recorded.
    """
    folder = outer.root / path
    # In a folder without a .git of its own, git would find the outer repository.
    if folder.is_symlink() or not os.path.lexists(folder / ".git"):
        return None
    found = find_repository(folder, outer.git.seconds)
    if not os.path.samefile(found.root, folder):
        raise GitTrouble("its files are elsewhere")
    if found.common_folder == outer.common_folder:
        raise GitTrouble("another working tree of this repository")
    return found


def _below(root: Path, paths: Iterable[Path]) -> list[str]:
    """Return the names of those files that are below a folder, also if a link leads to the folder."""
    folder, real = os.path.realpath(root), [Path(os.path.realpath(path)) for path in paths]
    return [path.relative_to(folder).as_posix() for path in real if path.is_relative_to(folder)]


def in_words(error: Exception) -> str:
    """Return an error in a line.

    >>> in_words(FileExistsError(17, "File exists", "runs"))
    "File exists: 'runs'"
    """
    if isinstance(error, InputError):
        return error.what
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {os.fspath(error.filename)!r}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"
