"""An archive has the same bytes for the same files, and nothing that is taken out leads out of its folder."""

from __future__ import annotations

import io
import os
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train_manager.runs.code.archive import (
    FILE,
    LINK,
    PROGRAM,
    ArchivedFile,
    put_file,
    read_archive,
    write_archive,
)

parts = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=130)
odd_parts = st.binary(min_size=1, max_size=130).filter(lambda text: not set(text) & set(b"/\0")).map(os.fsdecode)
paths = st.lists(parts | odd_parts, min_size=1, max_size=3).map("/".join)
files = st.builds(ArchivedFile, paths, st.sampled_from([FILE, PROGRAM]), st.binary(max_size=600))
links = st.builds(ArchivedFile, paths, st.just(LINK), paths.map(os.fsencode))


@given(st.lists(files | links, max_size=5))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, content: list[ArchivedFile]) -> None:
    path = tmp_path_factory.mktemp("archive") / "files.tar"

    write_archive(path, content)

    assert list(read_archive(path)) == content


def test_the_same_files_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = [
        ArchivedFile("a", FILE, b"1"),
        ArchivedFile("b\udcff" * 60, PROGRAM, b"2"),
        ArchivedFile("c", LINK, b"a"),
    ]
    write_archive(tmp_path / "one.tar", content)
    monkeypatch.setattr(time, "time", lambda: 1.0)
    write_archive(tmp_path / "two.tar", content)

    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "a//b", ".", "", "a/./b", "a\0b"])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()

    assert put_file(tmp_path / "in", ArchivedFile(name, FILE, b"x")) == "its name leads out of the folder"
    assert os.listdir(tmp_path) == ["in"]
    assert os.listdir(tmp_path / "in") == []


@pytest.mark.parametrize("name", [".git/config", "a/.git/hooks/post-checkout", ".GIT/config", ".git. /x"])
def test_a_name_in_a_git_folder_is_refused(tmp_path: Path, name: str) -> None:
    assert put_file(tmp_path, ArchivedFile(name, FILE, b"x")) == "its name leads into a git folder"


def test_nothing_is_written_through_a_link_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    put_file(tmp_path / "in", ArchivedFile("door", LINK, b".."))

    reason = put_file(tmp_path / "in", ArchivedFile("door/out", FILE, b"x"))

    assert reason == "door is a link, and nothing is written through links"
    assert os.listdir(tmp_path) == ["in"]


def test_nothing_is_written_through_a_link_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").write_bytes(b"mine")
    put_file(tmp_path / "in", ArchivedFile("door", LINK, b"../out"))

    assert put_file(tmp_path / "in", ArchivedFile("door", FILE, b"x")) is None
    assert (tmp_path / "out").read_bytes() == b"mine"
    assert (tmp_path / "in/door").read_bytes() == b"x"


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    put_file(tmp_path, ArchivedFile("a", FILE, b"x"))

    assert put_file(tmp_path, ArchivedFile("a/b", FILE, b"x")) == "a is a file where a folder is needed"
    put_file(tmp_path, ArchivedFile("c/d", FILE, b"x"))
    assert put_file(tmp_path, ArchivedFile("c", FILE, b"x")) == "a folder is in its place"


def test_devices_pipes_and_hard_links_in_an_archive_are_passed_over(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "files.tar", "w") as archive:
        for kind in (tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE):
            member = tarfile.TarInfo("odd")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
        archive.addfile(tarfile.TarInfo("plain"), io.BytesIO())

    assert [file.path for file in read_archive(tmp_path / "files.tar")] == ["plain"]


def test_a_file_with_holes_that_claims_to_be_huge_is_passed_over(tmp_path: Path) -> None:
    header = tarfile.TarInfo("huge")
    header.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(10**15), "GNU.sparse.numblocks": "1"}
    with tarfile.open(tmp_path / "files.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(header)

    assert list(read_archive(tmp_path / "files.tar")) == []
