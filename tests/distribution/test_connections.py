"""Connections that a process shuts as it fails."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from train_manager.distribution.connections import connections, connections_of_groups, shut

Pair = tuple[socket.socket, socket.socket]


def connect() -> Pair:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        return here, server.accept()[0]


@pytest.fixture
def pair() -> Iterator[Pair]:
    here, there = connect()
    with here, there:
        yield here, there


def test_a_connection_that_is_shut_has_ended_for_the_other_side(pair: Pair) -> None:
    here, there = pair
    shut({here.fileno(): connections()[here.fileno()]})
    there.settimeout(90)

    assert there.recv(1) == b""


def test_a_file_descriptor_that_has_another_connection_by_now_is_left_alone(pair: Pair) -> None:
    here, there = pair
    of_another = here.getsockname(), ("127.0.0.1", 1)
    shut({here.fileno(): of_another})
    there.send(b"1")

    assert here.recv(1) == b"1"


def test_a_connection_that_was_closed_is_left_out(pair: Pair) -> None:
    given = connections()
    for one in pair:
        one.close()
    shut({file: given[file] for file in given if not _is_open(file)})


def _is_open(file: int) -> bool:
    try:
        os.fstat(file)
    except OSError:
        return False
    return True


def test_connections_of_other_threads_are_not_taken_for_those_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    before = connections()
    here, there = connect()
    with here, there:
        assert set(connections_of_groups(before, 2, number=2)) == {here.fileno(), there.fileno()}
        assert connections_of_groups(before, 1, number=2) == {}  # one of these two is another thread's
