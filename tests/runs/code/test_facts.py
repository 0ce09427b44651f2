"""A repository says where it is, what it is in the middle of and where it comes from, without credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.code.repositories import git, repository
from tests.support.refusals import refusal
from train_manager.runs.code.facts import find_repository, without_credentials
from train_manager.runs.code.git import GitTrouble


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://example.com/a.git", "https://example.com/a.git"),
        ("https://me@example.com/a.git", "https://example.com/a.git"),
        ("https://ghp_abcdefghijklmnopqrstuvwxyz0123456789@example.com/a.git", "https://example.com/a.git"),
        ("https://me:p@ss/w0rd@example.com/a.git", "https://example.com/a.git"),
        ("https://example.com/a.git?private_token=abc#x", "https://example.com/a.git"),
        ("ssh://git@example.com:22/a.git", "ssh://git@example.com:22/a.git"),
        ("ssh://git:hunter2@example.com/a.git", "ssh://example.com/a.git"),
        ("git@example.com:a.git", "git@example.com:a.git"),
        ("/srv/a b.git", "/srv/a b.git"),
        ("../a.git", "../a.git"),
        ("file:///srv/a.git", "file:///srv/a.git"),
        ("ext::sh -c 'curl https://me:hunter2@example.com'", "ext::sh -c 'curl https://example.com'"),
        ("oauth2:hunter2secret@example.com:a.git", "example.com:a.git"),
        ("//me:hunter2@example.com/a.git", "example.com/a.git"),
        ("git@example.com:a.git?token=hunter2", "git@example.com:a.git"),
        ("https://example.com/a.git;token=hunter2", "https://example.com/a.git"),
        ("/srv/c#/why?/a.git", "/srv/c#/why?/a.git"),
    ],
)
def test_an_address_is_told_without_credentials(address: str, shown: str) -> None:
    assert without_credentials(address) == shown


def test_all_remotes_are_told(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a": b"a"})
    git(root, "remote", "add", "up.stream", "https://me:hunter2@example.com/up.git")
    git(root, "remote", "add", "origin", "git@example.com:lab.git")

    assert find_repository(root).remotes == {
        "origin": "git@example.com:lab.git",
        "up.stream": "https://example.com/up.git",
    }


def test_settings_that_cannot_be_read_are_a_reason(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a": b"a"})
    (root / ".git/config").write_text("[core\n")

    assert (
        refusal(lambda: find_repository(root), GitTrouble)
        == "git could not read the repository: bad config line 1 in file .git/config"
    )


def test_a_folder_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(GitTrouble, match="cannot change to"):
        find_repository(tmp_path / "nowhere")


@pytest.mark.parametrize("place", ["home", "."])
def test_files_that_a_setting_puts_elsewhere_are_not_recorded(tmp_path: Path, place: str) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1\n"})
    elsewhere = tmp_path / place
    elsewhere.mkdir(exist_ok=True)
    git(root, "config", "extensions.worktreeConfig", "true")
    (root / ".git" / "config.worktree").write_text(f"[core]\n\tworktree = {elsewhere}\n")

    assert (
        refusal(lambda: find_repository(root), GitTrouble)
        == f"the setting core.worktree of {root}/.git puts its files elsewhere, in {elsewhere}"
    )


def test_a_git_folder_that_lies_elsewhere_is_found(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1\n"}, "--separate-git-dir", str(tmp_path / "git"))
    git(root, "config", "core.worktree", "../lab")

    assert find_repository(root).git_folder == tmp_path / "git"


def test_names_and_complaints_are_told_without_credentials(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1\n"})
    git(root, "checkout", "-q", "-b", "feature/ghp_abcdefghijklmnopqrstuvwxyz0123456789")
    git(root, "config", "remote.https://me:hunter2@example.com/a.git.url", "a.git")

    found = find_repository(root)
    git(root, "config", "core.compression", "hunter2")
    told = refusal(lambda: find_repository(root), GitTrouble)

    assert (found.branch, found.remotes) == ("feature/***", {"https://example.com/a.git": "a.git"})
    assert "bad numeric config value for 'core.compression'" in told
    assert "hunter2" not in told
