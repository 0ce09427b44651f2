"""Tensors in the safetensors format: what comes back, what is refused, and headers that lie."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.checkpoints.states import same
from train_manager import CheckpointError
from train_manager.checkpoints.tensor_file import DTYPES, read_tensors, write_tensors


def written(**tensors: Tensor) -> bytes:
    file = io.BytesIO()
    write_tensors(file, tensors)
    return file.getvalue()


def parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the bytes of the tensors, found by hand."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def lying(**changes: Any) -> bytes:
    """A file of two float32 numbers called x, with a changed entry."""
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    return with_header(json.dumps({"x": entry}), bytes(8))


def with_header(header: str, content: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header.encode())) + header.encode() + content


@pytest.mark.parametrize("dtype", [*DTYPES.values(), torch.complex128], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3)], ids=str)
def test_a_tensor_of_each_dtype_and_shape_comes_back_bit_for_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 9).to(dtype)

    assert same(read_tensors(written(x=tensor)), {"x": tensor})


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(12.0)[1::3],
        torch.arange(3.0).expand(4, 3),
        torch.tensor([1 + 2j, 3 - 1j]).conj(),
        torch.tensor([1 + 2j, 3 - 1j]).conj().imag,
        nn.Parameter(torch.ones(2)),
        torch.tensor([float("nan"), float("-inf"), -0.0]),
    ],
    ids=["transposed", "strided", "expanded", "conjugate", "negative", "parameter", "special"],
)
def test_a_view_comes_back_as_a_plain_tensor(tensor: Tensor) -> None:
    back = read_tensors(written(x=tensor))["x"]

    assert back.is_contiguous()
    assert not back.requires_grad
    assert same(back, tensor.detach().resolve_conj().resolve_neg().as_subclass(Tensor))


def test_the_header_says_where_each_tensor_is() -> None:
    header, content = parts(written(flag=torch.tensor([True]), weight=torch.tensor([1.0, 2.0])))

    assert header["weight"] == {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    assert header["flag"] == {"dtype": "BOOL", "shape": [1], "data_offsets": [8, 9]}
    assert content == struct.pack("<ff?", 1.0, 2.0, True)


def test_each_tensor_begins_at_a_multiple_of_its_width() -> None:
    content = written(a=torch.ones(3, dtype=torch.uint8), b=torch.ones(3, dtype=torch.float64), c=torch.ones(1).half())
    header, numbers = parts(content)

    assert (len(content) - len(numbers)) % 8 == 0
    assert [name for name, _ in sorted(header.items(), key=lambda item: item[1]["data_offsets"])] == ["b", "c", "a"]


def test_tied_tensors_are_stored_once_and_come_back_tied() -> None:
    weight = torch.ones(1000)
    content = written(embedding=weight, head=weight, other=weight.clone())

    back = read_tensors(content)

    assert len(content) < 8300
    assert back["head"] is back["embedding"]
    assert back["other"] is not back["embedding"]
    assert parts(content)[0]["__metadata__"] == {"head": "embedding"}


def test_each_tensor_that_is_read_has_memory_of_its_own() -> None:
    back = read_tensors(written(a=torch.ones(2), b=torch.ones(2)))
    back["a"].zero_()

    assert back["a"].untyped_storage().nbytes() == 8
    assert back["b"].tolist() == [1, 1]


def test_only_the_tensors_that_are_wanted_are_read() -> None:
    weight = torch.ones(2)

    assert list(read_tensors(written(a=weight, b=weight, c=torch.ones(3)), ["b"])) == ["b"]


def test_a_file_without_tensors_is_a_file() -> None:
    assert read_tensors(written()) == {}


def test_the_library_of_safetensors_reads_it(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    tensors = {"a": torch.rand(3, 4).T, "b": torch.tensor(3), "c": torch.ones(2).bfloat16(), "d": torch.tensor([True])}
    (tmp_path / "x.safetensors").write_bytes(written(**tensors))

    back = library.load_file(tmp_path / "x.safetensors")

    assert all(same(back[name], tensors[name].contiguous()) for name in tensors)


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.ones(2).to_sparse(), "x is a tensor of layout torch.sparse_coo"),
        (torch.ones(2, device="meta"), "x is a tensor on the meta device, which has no values"),
        (torch.empty(2, dtype=torch.bits8), "x is a tensor of torch.bits8"),
        (nn.UninitializedParameter(), "x is a UninitializedParameter, which is more than a tensor"),
    ],
    ids=["sparse", "meta", "narrow", "lazy"],
)
def test_a_tensor_that_the_format_cannot_hold_is_refused(tensor: Tensor, reason: str) -> None:
    with pytest.raises(CheckpointError) as info:
        written(x=tensor)

    assert str(info.value) == reason


def test_the_name_that_the_format_keeps_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"^a tensor cannot be called '__metadata__', which the format keeps$"):
        write_tensors(io.BytesIO(), {"__metadata__": torch.ones(1)})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is not a safetensors file, or is cut off"),
        (b"\x01", "it is not a safetensors file, or is cut off"),
        (struct.pack("<Q", 1 << 62) + b"{}", "it is not a safetensors file, or is cut off"),
        (with_header("[]"), "its header is not an object"),
        (with_header("{" * 100_000), "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (with_header('{"a":' * 100_000), "it is nested too deep"),
        (with_header('{"a": 1, "a": 2}'), "the key 'a' is there twice"),
        (with_header('{"__metadata__": {"a": []}}'), "its __metadata__ is not an object of texts"),
        (with_header('{"x": NaN}'), "NaN is not JSON"),
        (with_header("{}", b"ab"), "its header tells of 0 bytes of tensors, but 2 are there"),
        (lying(shape=[3]), "shape and bytes of 'x' disagree"),
        (lying(dtype="F64"), "shape and bytes of 'x' disagree"),
        (
            lying(shape=[1 << 40], data_offsets=[0, 1 << 42]),
            f"its header tells of {1 << 42} bytes of tensors, but 8 are there",
        ),
        (lying(data_offsets=[4, 12]), "the bytes of 'x' begin at 4, not at 0"),
        (lying(data_offsets=[-8, 0]), "the bytes of 'x' begin at -8, not at 0"),
        (lying(dtype="P"), "the entry of 'x' is invalid: {'dtype': 'P', 'shape': [2], 'data_offsets': [0, 8]}"),
        (lying(shape=[-2]), "the entry of 'x' is invalid: {'dtype': 'F32', 'shape': [-2], 'data_offsets': [0, 8]}"),
        (lying(shape=[True]), "the entry of 'x' is invalid: {'dtype': 'F32', 'shape': [True], 'data_offsets': [0, 8]}"),
        (
            lying(shape=[0, 1 << 49]),
            "the entry of 'x' is invalid: {'dtype': 'F32', 'shape': [0, 562949953421312], 'data_offset",
        ),
        (lying(data_offsets=[0]), "the entry of 'x' is invalid: {'dtype': 'F32', 'shape': [2], 'data_offsets': [0]}"),
    ],
)
def test_a_header_that_lies_is_noticed_before_memory_is_taken(content: bytes, reason: str) -> None:
    with pytest.raises(CheckpointError) as info:
        read_tensors(content)

    assert str(info.value) == f"the content is damaged: {reason}"


def test_tensors_that_overlap_are_refused() -> None:
    entry = '{"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}'

    with pytest.raises(CheckpointError, match="the bytes of 'b' begin at 0, not at 8"):
        read_tensors(with_header(f'{{"a": {entry}, "b": {entry}}}', bytes(8)))
