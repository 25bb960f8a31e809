"""The wire format against Google's library, with hostile bytes, and the number of reads it takes."""

from __future__ import annotations

from array import array
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, UninterpretedOption
from google.protobuf.struct_pb2 import ListValue, Struct
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

from tensorkeep.errors import FormatError, LimitError, TensorkeepError, UnsupportedError
from tensorkeep.formats.protobuf import (
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    Field,
    MessageReader,
    count_varints,
    read_varints,
    signed32,
)
from tensorkeep.transport import ByteRange, LocalFile, MemorySource

INT64 = st.integers(-(2**63), 2**63 - 1)


def fields_of(data: bytes, **options: Any) -> list[Field]:
    return list(MessageReader(data, **options).fields())


def varints_of(data: bytes) -> list[int]:
    return [
        number for piece in read_varints(MemorySource(data), ByteRange(0, len(data))) for number in piece.tolist()
    ]


def test_each_field_has_its_value_and_its_place() -> None:
    message = UninterpretedOption(
        identifier_value="name",
        positive_int_value=300,
        negative_int_value=-7,
        double_value=1.5,
        string_value=b"\0\xf0",
    )
    data = message.SerializeToString()

    fields = {field.number: field for field in fields_of(data)}

    reader = MessageReader(data)
    assert reader.read_text(fields[3].span, max_nbytes=4) == "name"
    assert (fields[4].wire_type, fields[4].uint64) == (VARINT, 300)
    assert fields[5].int64 == -7
    assert fields[5].int32 == -7
    assert (fields[6].wire_type, data[fields[6].start : fields[6].stop]) == (FIXED64, array("d", [1.5]).tobytes())
    assert reader.read(fields[7].span, max_nbytes=2) == b"\0\xf0"


def test_messages_within_messages_are_walked_with_the_same_reader() -> None:
    value = Struct()
    value.update({"a": {"b": {"c": "deep"}}})
    data = value.SerializeToString()

    def texts(reader: MessageReader, span: ByteRange | None, depth: int) -> list[str]:
        found = []
        for field in reader.fields(span):
            if depth and field.wire_type == LENGTH:
                found += texts(reader, field.span, depth - 1)
            elif field.wire_type == LENGTH:
                found.append(reader.read_text(field.span, max_nbytes=100))
        return found

    assert texts(MessageReader(data), None, 1) == ["a", value.fields["a"].SerializeToString().decode()]


@given(st.lists(INT64), st.lists(st.floats(width=32)))
def test_packed_numbers_are_what_google_reads(numbers: list[int], floats: list[float]) -> None:
    data = TensorProto(int64_data=numbers, float_data=floats).SerializeToString()

    spans = {field.number: field.span for field in fields_of(data)}

    of_numbers = data[spans[7].start : spans[7].stop] if numbers else b""
    assert array("q", array("Q", varints_of(of_numbers)).tobytes()).tolist() == numbers
    assert count_varints(of_numbers) == len(numbers)
    assert len(spans[4]) == 4 * len(floats) if floats else 4 not in spans


def test_many_numbers_cross_the_borders_of_pieces() -> None:
    numbers = [value % 100_003 for value in range(0, 40_000_000, 101)]
    assert varints_of(packed(numbers)) == numbers


def packed(numbers: list[int]) -> bytes:
    (field,) = fields_of(data := TensorProto(uint64_data=numbers).SerializeToString())
    return data[field.start : field.stop]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\x0a", "ends within a field"),
        (b"\x0a\x05abc", "ends within a field"),
        (b"\x08\x80", "ends within a field"),
        (b"\x0d\0\0\0", "ends within a field"),
        (b"\x09\0\0\0\0\0\0\0", "ends within a field"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "longer than 64 bits"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "ends within a field"),
        (b"\0\0", "an impossible number"),
        (b"\x80\x80\x80\x80\x10\0", "an impossible number"),
        (b"\x0e\0", "a type that does not exist"),
        (b"\x0f\0", "a type that does not exist"),
    ],
)
def test_bytes_that_are_no_message(data: bytes, error: str) -> None:
    with pytest.raises(FormatError, match=error):
        fields_of(data)


def test_numbers_of_which_other_readers_drop_bits_are_refused() -> None:
    data = b"\x08" + b"\xff" * 9 + b"\x02"
    assert TensorProto.FromString(data)

    with pytest.raises(UnsupportedError, match="more than 64 bits"):
        fields_of(data)


def test_groups_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="groups"):
        fields_of(b"\x0b\x0c")


def test_a_message_does_not_reach_beyond_its_end() -> None:
    data = b"\x0a\x02\x0a\x05abcdef"
    outer = next(MessageReader(data).fields())

    with pytest.raises(FormatError, match="ends within a field"):
        list(MessageReader(data).fields(outer.span))


def test_fields_of_another_type_are_refused() -> None:
    number, text = fields_of(b"\x08\x01\x12\x01a")

    with pytest.raises(FormatError, match=r"expected bytes with a length, found a varint at byte 1"):
        _ = number.span
    with pytest.raises(FormatError, match="expected a varint"):
        _ = text.int64
    with pytest.raises(FormatError, match="expected 4 bytes or bytes with a length"):
        number.expect(FIXED32, LENGTH)


def test_limits() -> None:
    with pytest.raises(LimitError, match="too many fields"):
        fields_of(b"\x08\x01" * 11, max_fields=10)
    reader = MessageReader(b"\x0a\x03abc")
    (field,) = reader.fields()
    with pytest.raises(LimitError, match="at most 2 bytes, found 3 at byte 2"):
        reader.read(field.span, max_nbytes=2)
    with pytest.raises(FormatError, match="not UTF-8"):
        MessageReader(b"\xff").read_text(ByteRange(0, 1), max_nbytes=1)


@pytest.mark.parametrize("data", [b"\x80", b"\x01\x80", b"\xff" * 10, b"\xff" * 9 + b"\x7f", b"\x80" * 400_000])
def test_packed_bytes_that_are_no_numbers(data: bytes) -> None:
    with pytest.raises(FormatError):
        varints_of(data)


@given(st.binary(max_size=200))
def test_any_bytes_give_fields_or_an_error(data: bytes) -> None:
    with suppress(TensorkeepError):
        assert all(0 < field.start <= field.stop <= len(data) for field in fields_of(data))
    with suppress(TensorkeepError):
        assert len(varints_of(data)) == count_varints(data)


def test_the_lowest_bits_are_an_int32() -> None:
    assert [signed32(value) for value in (0, 2**31 - 1, 2**31, 2**64 - 1, 2**32 + 5)] == [
        0,
        2**31 - 1,
        -(2**31),
        -1,
        5,
    ]


class CountedFile(LocalFile):
    """A file that counts its reads."""

    n_reads = 0
    n_bytes = 0

    def read(self, span: ByteRange) -> Any:
        self.n_reads += 1
        self.n_bytes += len(span)
        return super().read(span)


def test_long_payloads_are_not_read_and_small_fields_are_read_together(tmp_path: Path) -> None:
    message = DescriptorProto(reserved_name=["x" * 10_000_000] * 5 + [f"name {i}" for i in range(100_000)])
    (tmp_path / "a").write_bytes(message.SerializeToString())
    source = CountedFile(str(tmp_path / "a"))

    assert sum(1 for _ in MessageReader(source).fields()) == 100_005
    assert source.n_reads <= 5 + 6
    assert source.n_bytes < 3_000_000


def test_an_empty_message_has_no_fields() -> None:
    assert fields_of(ListValue().SerializeToString()) == []
