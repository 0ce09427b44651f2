"""Tensors in one file: what comes back, what is refused, and headers that lie."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import torch as library
from torch import Tensor, nn

from tests.checkpoints.states import same
from train_manager.checkpoints.tensors import DTYPES, LARGEST_HEADER, NOTE, content_of, read_tensors, why_not
from train_manager.errors import CheckpointError

SOME = Path("some.safetensors")


class Measured(Tensor):
    """A tensor with more than its values."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / SOME


def write_tensors(file: Path, tensors: dict[str, Tensor], *, shares: bool = True) -> None:
    file.write_bytes(b"".join(content_of(tensors, shares=shares)))


def back(file: Path, **tensors: Tensor) -> dict[str, Tensor]:
    """Tensors that were written and read."""
    write_tensors(file, tensors)
    return read_tensors(file.read_bytes(), file)


def metadata_of(file: Path) -> Any:
    """What a header says beside the tensors, found by hand."""
    (length,) = struct.unpack("<Q", (content := file.read_bytes())[:8])
    return json.loads(content[8 : 8 + length]).get("__metadata__")


def lying(**changes: Any) -> bytes:
    """A file of two float32 numbers called x, with a changed entry."""
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    return with_header(json.dumps({"x": entry}), bytes(8))


def with_header(header: str, content: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header.encode())) + header.encode() + content


def noting(note: str) -> bytes:
    """A file of a tensor x of two numbers, with a note of ours in any form."""
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    return with_header(json.dumps({"__metadata__": {NOTE: note}, "x": entry}), bytes(8))


# ---- what comes back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3)], ids=str)
def test_a_tensor_of_each_dtype_and_shape_comes_back_bit_for_bit(
    file: Path, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    tensor = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 9).to(dtype)

    assert same(back(file, x=tensor), {"x": tensor})


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(12.0)[1::3],
        torch.arange(3.0).expand(4, 3),
        torch.tensor([1 + 2j, 3 - 1j]).conj(),
        torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex128).conj(),
        torch.tensor([1 + 2j, 3 - 1j]).conj().imag,
        nn.Parameter(torch.ones(2)),
        torch.tensor([float("nan"), float("-inf"), -0.0]),
    ],
    ids=["transposed", "strided", "expanded", "conjugate", "wide conjugate", "negative", "parameter", "special"],
)
def test_a_view_comes_back_as_a_plain_tensor(file: Path, tensor: Tensor) -> None:
    found = back(file, x=tensor)["x"]

    assert found.is_contiguous()
    assert not found.requires_grad
    assert same(found, tensor.detach().resolve_conj().resolve_neg().as_subclass(Tensor))


def test_tied_tensors_are_stored_once_and_come_back_tied(file: Path) -> None:
    weight = torch.ones(1000)
    found = back(file, embedding=weight, head=weight, other=weight.clone())

    assert file.stat().st_size < 8300
    assert found["head"] is found["embedding"]
    assert found["other"] is not found["embedding"]
    assert json.loads(metadata_of(file)[NOTE])["tied"] == {"head": "embedding"}


def test_tensors_that_share_a_part_of_their_memory_come_back_apart(file: Path) -> None:
    whole = torch.arange(6.0)
    found = back(file, whole=whole, part=whole[:2], end=whole[4:])

    assert same(found, {"end": whole[4:], "part": whole[:2], "whole": whole})
    found["whole"].zero_()
    assert found["part"].tolist() == [0, 1]


def test_other_programs_find_each_of_two_tied_tensors_if_they_ask_for_it(file: Path) -> None:
    weight = torch.ones(3)
    write_tensors(file, {"embedding": weight, "head": weight}, shares=False)

    assert same(library.load_file(file), {"embedding": weight, "head": weight})


def test_the_names_that_another_program_has_left_out_are_read(file: Path) -> None:
    model = nn.Sequential(first := nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = first.weight
    library.save_model(model, str(file), {"format": "pt"})

    found = read_tensors(file.read_bytes(), file)

    assert sorted(found) == ["0.bias", "0.weight", "1.bias", "1.weight"]
    assert found["0.weight"] is found["1.weight"]


def test_each_tensor_that_is_read_has_memory_of_its_own(file: Path) -> None:
    found = back(file, a=torch.ones(2), b=torch.ones(2))
    found["a"].zero_()

    assert found["a"].untyped_storage().nbytes() == 8
    assert found["a"].untyped_storage().resizable()
    assert found["b"].tolist() == [1, 1]


def test_a_file_without_tensors_is_a_file(file: Path) -> None:
    assert back(file) == {}


def test_the_library_of_safetensors_reads_it(file: Path) -> None:
    tensors = {"a": torch.rand(3, 4).T, "b": torch.tensor(3), "c": torch.ones(2).bfloat16(), "d": torch.tensor([True])}
    write_tensors(file, tensors)

    found = library.load_file(file)

    assert all(same(found[name], tensors[name].contiguous()) for name in tensors)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype is not torch.complex128], ids=str)
def test_the_library_of_safetensors_makes_the_same_file(dtype: torch.dtype) -> None:
    tensors = {
        "b": torch.ones(3, 5, dtype=dtype),
        "name": torch.zeros((), dtype=dtype),
        "ä\n": torch.empty(0, dtype=dtype),
    }

    assert b"".join(content_of(tensors)) == library.save(tensors)


def test_the_same_tensors_make_the_same_bytes() -> None:
    weights = [torch.full((2,), float(n)) for n in range(6)]
    tensors = {f"{name}{n}": weight for name in "abc" for n, weight in enumerate(weights)}
    tensors |= {f"wide{n}": torch.ones(1, dtype=torch.complex128) for n in range(6)}

    assert len({b"".join(content_of(tensors)) for _ in range(5)}) == 1


def test_each_tensor_begins_at_a_multiple_of_the_size_of_its_numbers() -> None:
    tensors = {"a": torch.ones(3, dtype=torch.int8), "b": torch.ones(3).half(), "c": torch.ones(3).double()}
    header, *memories = content_of(tensors)

    assert len(header) % 8 == 0
    assert [memory.nbytes for memory in memories] == [24, 6, 3]


def test_a_tensor_on_the_cpu_is_written_from_its_own_memory() -> None:
    tensor = torch.zeros(2, dtype=torch.uint8)
    _, memory = content_of({"x": tensor})
    tensor.fill_(7)

    assert bytes(memory) == b"\x07\x07"


def test_what_another_process_can_change_is_written_as_it_was() -> None:
    """Else the file could have other bytes than its hash says."""
    tensor = torch.zeros(2, dtype=torch.uint8).share_memory_()
    _, memory = content_of({"x": tensor})
    tensor.fill_(7)

    assert bytes(memory) == b"\x00\x00"


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.ones(2).to_sparse(), "is a tensor of layout torch.sparse_coo"),
        (torch.ones(2, device="meta"), "is a tensor on the meta device, which has no values"),
        (torch.empty(2, dtype=torch.bits8), "is a tensor of torch.bits8"),
        pytest.param(
            *(torch.ones(2).to(getattr(torch, "float8_e8m0fnu", torch.float32)), "is a tensor of torch.float8_e8m0fnu"),
            marks=pytest.mark.skipif(not hasattr(torch, "float8_e8m0fnu"), reason="torch 2.6 has no such type"),
        ),
        (nn.UninitializedParameter(), "is a UninitializedParameter, which is more than a tensor"),
        (torch.ones(2).as_subclass(Measured), "is a Measured, which is more than a tensor"),
    ],
    ids=["sparse", "meta", "narrow", "written but not read", "lazy", "subclass"],
)
def test_a_tensor_that_the_format_cannot_hold_is_refused(tensor: Tensor, reason: str) -> None:
    assert why_not(tensor) == reason


def test_the_name_that_the_format_keeps_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"^a tensor cannot be called '__metadata__', which the format keeps$"):
        content_of({"__metadata__": torch.ones(1)})


def test_a_name_that_is_no_text_of_any_language_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"^the name of a tensor is not a text: .* surrogates not allowed$"):
        content_of({"\ud800": torch.ones(1)})


def test_names_that_the_library_would_not_read_are_refused() -> None:
    with pytest.raises(
        CheckpointError, match=r"^the names of the tensors take 110 MB, which the library does not read$"
    ):
        content_of({"x" * (LARGEST_HEADER + 10_000_000): torch.ones(2)})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "header too small"),
        (b"\x01", "header too small"),
        (struct.pack("<Q", 1 << 62) + b"{}", "header too large"),
        (with_header("[]"), "invalid JSON in header: invalid type: sequence, expected struct HashMetadata"),
        (with_header("{" * 100_000), "invalid JSON in header: key must be a string at line 1 column 2"),
        (with_header('{"a":' * 100_000), "invalid JSON in header: recursion limit exceeded"),
        (with_header('{"a": 1, "a": 2}'), "invalid JSON in header: invalid type: integer `1`"),
        (with_header('{"__metadata__": {"a": []}}'), "invalid JSON in header: invalid type: sequence"),
        (with_header('{"x": NaN}'), "invalid JSON in header: expected value"),
        (with_header("{}", b"ab"), "incomplete metadata, file not fully covered"),
        (lying(shape=[3]), "invalid shape, data type, or offset for tensor"),
        (lying(dtype="F64"), "invalid shape, data type, or offset for tensor"),
        (lying(shape=[1 << 40], data_offsets=[0, 1 << 42]), "incomplete metadata, file not fully covered"),
        (lying(data_offsets=[4, 12]), "invalid offset for tensor `x`"),
        (lying(data_offsets=[-8, 0]), "invalid JSON in header: invalid value: integer `-8`, expected usize"),
        (lying(dtype="P"), "invalid JSON in header: unknown variant `P`, expected one of `BOOL`"),
        (lying(shape=[-2]), "invalid JSON in header: invalid value: integer `-2`, expected usize"),
        (lying(shape=[True]), "invalid JSON in header: invalid type: boolean `true`, expected usize"),
        (lying(shape=[0, 1 << 49]), "invalid shape, data type, or offset for tensor"),
        (lying(data_offsets=[0]), "invalid JSON in header: invalid length 1, expected a tuple of size 2"),
        (lying(dtype="F4", shape=[16]), "'F4'"),
        (lying(dtype="F8_E8M0", shape=[8]), "'F8_E8M0'"),
        (
            with_header('{"x": {"dtype": "F32", "shape": [0, 1099511627776, 1099511627776], "data_offsets": [0, 0]}}'),
            "Stride calculation overflowed",
        ),
        (noting("["), "Expecting value: line 1 column 2"),
        (noting("[]"), "'list' object has no attribute 'get'"),
        (noting('{"tied": {"y": []}}'), "unhashable type: 'list'"),
        (noting('{"complex128": ["x"], "tied": 3}'), "'int' object is not a mapping"),
        (noting('{"complex128": 3}'), "'int' object is not iterable"),
    ],
)
def test_a_header_that_lies_is_noticed(content: bytes, reason: str) -> None:
    with pytest.raises(CheckpointError) as info:
        read_tensors(content, SOME)

    told = str(info.value)
    assert told.startswith(f"{SOME} is damaged: it is not a safetensors file, or is cut off ({reason}")
    assert told.endswith(")")


def test_tensors_that_overlap_are_refused() -> None:
    entry = '{"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}'

    with pytest.raises(CheckpointError, match=r"\(invalid offset for tensor `[ab]`\)$"):
        read_tensors(with_header(f'{{"a": {entry}, "b": {entry}}}', bytes(8)), SOME)
