"""A SHA-256 that is computed in a thread, while its content is written and synced: it takes as long as both."""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, final

PIECE: Final = 1_000_000  # bytes; a smaller piece is not worth its hand-over to the thread
# Bytes that wait to be hashed, at most: the copy of a tensor from a GPU stays in memory until it is hashed.
WAITING: Final = 256_000_000


@final
class HashBeside:
    """The hash of all pieces that it is given, in their order. A piece must not change until the digest is taken.

    >>> beside = HashBeside()
    >>> beside.update(b"abc")
    >>> beside.hexdigest()[:8]
    'ba7816bf'
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._small = bytearray()  # small pieces, joined until they are large enough for the thread
        # Made with the first large piece: most files are small and need no thread.
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: deque[tuple[Future[None], int]] = deque()  # pieces in the thread, with their sizes

    def update(self, piece: bytes | memoryview) -> None:
        """Add a piece, which is hashed later."""
        if len(piece) < PIECE:
            self._small += piece
        # Small pieces that came earlier go first: the order of the bytes decides the hash.
        if len(piece) >= PIECE or len(self._small) >= PIECE:
            self._submit_small()
        if len(piece) >= PIECE:
            self._submit(piece)

    def hexdigest(self) -> str:
        """Return the hash of all pieces, as soon as it is there."""
        while self._waiting:
            self._waiting.popleft()[0].result()
        self._hash.update(self._small)
        self._small.clear()
        return self._hash.hexdigest()

    def close(self, *, is_wanted: bool) -> None:
        """End the thread; if the hash is wanted, when all pieces are hashed."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=not is_wanted)

    def _submit_small(self) -> None:
        if self._small:
            small, self._small = self._small, bytearray()
            self._submit(small)

    def _submit(self, piece: bytes | bytearray | memoryview) -> None:
        if self._thread is None:
            # One worker hashes the pieces in the order in which they were submitted; hashlib lets other threads run.
            self._thread = ThreadPoolExecutor(1, "hash")
        self._waiting.append((self._thread.submit(self._hash.update, piece), len(piece)))
        while sum(size for _, size in self._waiting) > WAITING and len(self._waiting) > 1:
            self._waiting.popleft()[0].result()
