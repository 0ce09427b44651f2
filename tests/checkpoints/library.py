"""What the library safetensors does to a disk, in lines of Python that can be killed and whose calls can fail.

It writes in Rust, where no test can come in between: a file beside, for its owner alone, which then gets the name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor


@contextmanager
def in_python() -> Iterator[None]:
    """Let checkpoints be written by the model in place of the library."""
    with patch("train_manager.checkpoints.tensors.save_file", save_file):
        yield


def save_file(tensors: dict[str, Tensor], filename: str | Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors as `safetensors.torch.save_file` does, in two pieces."""
    content, path = save(tensors, metadata), Path(filename)
    temporary = path.with_name(f".tmp{path.name}")  # the library takes six random letters
    try:
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            middle = len(content) // 2
            for rest in (memoryview(content)[:middle], memoryview(content)[middle:]):
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        told = f'{error.strerror} (os error {error.errno}) at path "{temporary}"'
        raise SafetensorError(f"Error while serializing: I/O error: {told}") from None
