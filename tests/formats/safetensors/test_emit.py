"""Written headers: byte for byte those of the reference, and read back as what they were made of."""

from __future__ import annotations

from math import prod
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from tensorkeep.dtypes import BY_NAME, DTYPES
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import HeaderError, LimitError
from tensorkeep.formats.safetensors import emit_header, lay_out, parse_header
from tests.support.formats.reference_files import WRITABLE, Plain, reference_file

ODD = '"\\/:,{}[]\b\f\n\r\t\x00\x01\x1f\x7f\x80\xff\u2028\u2029\ufeff\uffff\U0001f600\U0010ffff é'
TEXT = st.text(st.sampled_from(ODD), max_size=6) | st.text(max_size=6)
NAMES = TEXT.filter(lambda name: name != "__metadata__")
SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@st.composite
def plain_tensors(draw: st.DrawFn, dtypes: tuple[str, ...]) -> Plain:
    dtype, shape = draw(st.sampled_from(dtypes)), draw(SHAPES)
    if prod(shape) * BY_NAME[dtype].bits % 8 or (dtype == "F4" and (not shape or shape[-1] % 2)):
        shape = (*shape, 8)
    return Plain.counting(dtype, *shape)


def written(tensors: dict[str, Plain], metadata: dict[str, str] | None) -> bytes:
    entries = lay_out({
        name: (BY_NAME[tensor.dtype], tensor.shape, len(tensor.data)) for name, tensor in tensors.items()
    })
    return emit_header(entries, metadata) + b"".join(tensors[name].data for name in entries)


@given(
    tensors=st.dictionaries(NAMES, plain_tensors(WRITABLE), max_size=6),
    metadata=st.none() | st.dictionaries(TEXT, TEXT, min_size=1, max_size=1),
)
@example(tensors={"\U0001f600": Plain.counting("F32", 2), "\uffff": Plain.counting("F32", 2)}, metadata=None)
@example(tensors={}, metadata={"__metadata__": "x"})
def test_bytes_are_those_of_the_reference(tensors: dict[str, Plain], metadata: dict[str, str] | None) -> None:
    assert written(tensors, metadata) == reference_file(tensors, metadata)


@given(
    tensors=st.dictionaries(NAMES, plain_tensors(tuple(BY_NAME)), max_size=6),
    metadata=st.none() | st.dictionaries(TEXT, TEXT, max_size=4),
)
@example(tensors={}, metadata={"__metadata__": "x"})
@example(tensors={}, metadata={"a": '"__metadata__":{}'})
@example(tensors={'"__metadata__":': Plain.counting("U8", 1)}, metadata={"a": "b"})
def test_what_was_written_is_read(tensors: dict[str, Plain], metadata: dict[str, str] | None) -> None:
    file = written(tensors, metadata)
    header_nbytes = int.from_bytes(file[:8], "little")

    header = parse_header(file[8 : 8 + header_nbytes], len(file) - 8 - header_nbytes)

    assert header.data_start % 8 == 0
    assert header.metadata == metadata
    assert {name: (entry.dtype, entry.shape) for name, entry in header.entries.items()} == {
        name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()
    }


@given(
    tensors=st.dictionaries(NAMES, plain_tensors(tuple(BY_NAME)), max_size=6),
    metadata=st.dictionaries(TEXT, TEXT, max_size=4),
    shuffled=st.randoms(use_true_random=False),
)
def test_equal_input_in_any_order_gives_equal_bytes(
    tensors: dict[str, Plain], metadata: dict[str, str], shuffled: Random
) -> None:
    names, keys = list(tensors), list(metadata)
    shuffled.shuffle(names)
    shuffled.shuffle(keys)

    again = written({name: tensors[name] for name in names}, {key: metadata[key] for key in keys})

    assert again == written(tensors, metadata)


def test_wide_dtypes_come_first_then_names() -> None:
    tensors = {f"{letter}{dtype.name}": (dtype, (8,), dtype.bits) for dtype in DTYPES for letter in "ba"}

    entries = lay_out(tensors)

    ranks = [BY_NAME[entry.dtype].rank for entry in entries.values()]
    assert ranks == sorted(ranks, reverse=True)
    assert list(entries)[:4] == ["aU64", "bU64", "aI64", "bI64"]
    assert [entry.data_offsets[0] for entry in entries.values()][1:] == [
        entry.data_offsets[1] for entry in entries.values()
    ][:-1]


def test_a_tensor_cannot_bear_the_name_of_metadata() -> None:
    with pytest.raises(HeaderError, match="__metadata__"):
        lay_out({"__metadata__": (BY_NAME["U8"], (1,), 1)})


@pytest.mark.parametrize("metadata", [None, {"\ud800": ""}, {"a": "\udfff"}])
def test_lone_surrogates_are_refused(metadata: dict[str, str] | None) -> None:
    entries = {"a" if metadata else "\ud800": TensorEntry("U8", (1,), (0, 1))}

    with pytest.raises(HeaderError, match="no UTF-8 form"):
        emit_header(entries, metadata)


@pytest.mark.parametrize("metadata", [{"a": 1}, {"a": None}, {1: "a"}, {"a": b"b"}, {"a": {"b": "c"}}])
def test_metadata_that_no_reader_would_accept_is_not_written(metadata: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="metadata must map str to str"):
        emit_header({}, metadata)


def test_a_header_that_no_reader_would_accept_is_not_written() -> None:
    with pytest.raises(LimitError, match=r"header too large.*: 1 tensors.*Save fewer tensors in one file"):
        emit_header({"a" * 100_000_000: TensorEntry("U8", (1,), (0, 1))})
    with pytest.raises(LimitError, match=r"header too large.*: 0 tensors.*Save less metadata"):
        emit_header({}, {"note": "a" * 100_000_000})
