"""Broken and hostile models: each gives tensors or one of our errors, quickly."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

import tensorkeep
from tensorkeep.errors import FormatError, LimitError, TensorkeepError
from tensorkeep.formats.onnx import _tensor, is_onnx, parse_onnx
from tensorkeep.formats.onnx._model import ExternalTensor
from tensorkeep.formats.onnx._plain_tensor import read_plain
from tensorkeep.formats.protobuf import MessageReader
from tensorkeep.transport import ByteRange, MemorySource


def model_of(*tensors: TensorProto, nodes: tuple[NodeProto, ...] = ()) -> ModelProto:
    return helper.make_model(helper.make_graph(list(nodes), "graph", [], [], initializer=list(tensors)))


def parse(model: ModelProto | bytes) -> Any:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    source = MemorySource(data)
    contents = parse_onnx(source)
    contents.check_ranges(source)
    return contents


def of(**fields: Any) -> ModelProto:
    return model_of(TensorProto(name="w", **fields))


def with_attribute(attribute: AttributeProto) -> ModelProto:
    return model_of(nodes=(NodeProto(op_type="Constant", output=["k"], attribute=[attribute]),))


BROKEN: dict[str, tuple[Callable[[], ModelProto | bytes], str]] = {
    "no graph": (lambda: ModelProto(ir_version=8), "it has no graph"),
    "nothing": (lambda: b"", "it has no graph"),
    "two graphs": (lambda: model_of().SerializeToString() * 2, "field 7 twice"),
    "too few bytes": (lambda: of(data_type=1, dims=[2], raw_data=bytes(7)), "tensor `w`: its bytes .*expected 8"),
    "too many bytes": (lambda: of(data_type=1, dims=[2], raw_data=bytes(9)), "expected 8 .*found 9"),
    "a half byte too few": (lambda: of(data_type=22, dims=[3], raw_data=b"1"), "expected 2"),
    "a shape of no tensor": (lambda: of(data_type=1, dims=[-1], raw_data=b""), "no tensor has its shape"),
    "a shape too large": (lambda: of(data_type=1, dims=[2**62, 2**62], raw_data=b""), "no tensor has its shape"),
    "a large shape": (lambda: of(data_type=1, dims=[2**40], raw_data=b""), "expected 4,398,046,511,104"),
    "dimensions": (lambda: of(data_type=1, dims=[1] * 1025, raw_data=bytes(4)), "no tensor has its shape"),
    "raw and typed": (lambda: of(data_type=1, dims=[1], raw_data=bytes(4), float_data=[1]), "in several fields"),
    "typed twice": (lambda: of(data_type=1, dims=[1], float_data=[1], int32_data=[1]), "in several fields"),
    "another type": (lambda: of(data_type=1, dims=[1], int32_data=[1]), "the field of another type"),
    "too few numbers": (lambda: of(data_type=6, dims=[2], int32_data=[1]), "2 numbers of 1 to 10 bytes, found 1"),
    "too many numbers": (lambda: of(data_type=7, dims=[1], int64_data=[1] * 11), "found 11 bytes"),
    "too few floats": (lambda: of(data_type=1, dims=[2], float_data=[1]), "expected 8"),
    "too few strings": (lambda: of(data_type=8, dims=[2], string_data=[b"a"]), "expected 2, found 1"),
    "two of one name": (lambda: model_of(*[numpy_helper.from_array(np.ones(1), "w")] * 2), "two tensors are called"),
    "a constant without a value": (lambda: with_attribute(AttributeProto(name="value_float")), "expected 4 for"),
    "a sparse tensor of nothing": (
        lambda: ModelProto(graph=GraphProto(sparse_initializer=[{}])),
        "no values or no indices",
    ),
    "metadata twice": (
        lambda: ModelProto(graph=GraphProto(), metadata_props=[{"key": "a"}, {"key": "a"}]),
        "metadata key twice",
    ),
    "a place named twice": (
        lambda: of(data_type=1, data_location=1, external_data=[{"key": "location"}, {"key": "location"}]),
        "another file twice",
    ),
}


@pytest.mark.parametrize(("model", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_models(model: Callable[[], ModelProto | bytes], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse(model())


def test_elements_that_are_fewer_than_their_bytes_are_refused_when_read() -> None:
    model = of(data_type=6, dims=[2], int32_data=[1 << 20])  # three bytes could be two numbers

    with tensorkeep.open(model.SerializeToString()) as file, pytest.raises(FormatError, match="expected 8 bytes"):
        file["w"].load()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"data_type": 99, "dims": [1], "raw_data": b"a"}, "data type 99"),
        ({"data_type": 0, "dims": [1], "raw_data": b"a"}, "data type 0"),
        ({"data_type": 1, "dims": [2]}, "whose elements are not in the file"),
        ({"data_type": 23, "dims": [3], "raw_data": b"ab"}, "do not fill whole bytes"),
        (
            {"data_type": 1, "dims": [1], "raw_data": bytes(4), "segment": {"begin": 0, "end": 1}},
            "a part of a tensor",
        ),
    ],
)
def test_what_is_not_read_is_listed(fields: dict[str, Any], why: str) -> None:
    assert why in str(parse(of(**fields)).unknowns["w"])


def test_graphs_within_graphs_have_an_end() -> None:
    for depth, is_fine in ((99, True), (101, False), (3000, False)):
        data = b""
        for _ in range(depth):
            attribute = b"\x32" + length(data) + data  # g = 6
            node = b"\x2a" + length(attribute) + attribute
            data = b"\x0a" + length(node) + node
        model = b"\x08\x08\x3a" + length(data) + data
        if is_fine:
            parse(model)
        else:
            with pytest.raises(LimitError, match="nested too deeply"):
                parse(model)


def length(data: bytes) -> bytes:
    n, found = len(data), b""
    while n > 127:
        found += bytes([n & 127 | 128])
        n >>= 7
    return found + bytes([n])


def test_many_graphs_do_not_repeat_a_long_path() -> None:
    node = NodeProto(output=["x" * 40_000], op_type="If")
    inner = GraphProto(node=[NodeProto(op_type="If", attribute=[AttributeProto(name="g", g=GraphProto())])] * 10_000)
    node.attribute.append(AttributeProto(name="g", g=inner))

    with pytest.raises(LimitError, match="names of tensors are too long"):
        parse(model_of(nodes=(node,)))


def seed() -> bytes:
    branch = helper.make_graph([], "g", [], [], initializer=[numpy_helper.from_array(np.arange(2), "v")])
    nodes = (
        helper.make_node("If", ["c"], ["r"], then_branch=branch),
        helper.make_node("Constant", [], ["k"], value_ints=[1, 2, 300]),
        helper.make_node("Constant", [], ["s"], value_strings=["a", "b"]),
    )
    values = numpy_helper.from_array(np.array([1.5], np.float32), "sparse")
    model = model_of(
        numpy_helper.from_array(np.arange(3, dtype=np.float32), "w"),
        helper.make_tensor("t", TensorProto.FLOAT16, [2], [1.0, 2.0]),
        helper.make_tensor("n", TensorProto.INT4, [3], [1, -2, 3]),
        nodes=nodes,
    )
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, numpy_helper.from_array(np.arange(1)), [4])
    )
    helper.set_model_props(model, {"a": "b"})
    return bytes(model.SerializeToString())


def read_all(data: bytes) -> None:
    try:
        with tensorkeep.open(data) as file:
            file.load()
            for array in file.strings.values():
                array.load()
    except TensorkeepError:
        pass


def test_every_truncation_and_many_flips() -> None:
    data = seed()
    for stop in range(len(data)):
        read_all(data[:stop])
    chance = random.Random(0)
    for _ in range(2000):
        broken = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        read_all(bytes(broken))


def test_other_bytes_are_not_models() -> None:
    assert is_onnx(MemorySource(seed()))
    assert not is_onnx(MemorySource(seed()[:-1]))
    core_ml = b"\x08\x04\x12\x04abcd\x52\x00"  # another program's message begins the same way
    assert not is_onnx(MemorySource(core_ml))
    assert not is_onnx(MemorySource(b"\x08\x08\x12\x01a\x3a\x00"))


def test_twenty_thousand_small_tensors_open_quickly() -> None:
    tensors = [numpy_helper.from_array(np.ones(4, np.float32), f"layers.{place}.weight") for place in range(20_000)]
    data = model_of(*tensors).SerializeToString()

    begun = time.perf_counter()
    assert len(parse(data).tensors) == 20_000
    assert time.perf_counter() - begun < 5


ODD = [
    numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "w"),
    numpy_helper.from_array(np.zeros((0, 3), np.int64), "empty"),
    numpy_helper.from_array(np.array(2.5), "scalar"),
    numpy_helper.from_array(np.ones((1,) * 20, np.float16), "many.dims"),
    numpy_helper.from_array(np.ones(200, np.uint8), "n" * 130),
    numpy_helper.from_array(np.ones(2), "ü" * 300),
    helper.make_tensor("n4", TensorProto.INT4, [3], [1, -2, 3]),
    helper.make_tensor("typed", TensorProto.FLOAT, [2], [1.0, 2.0]),
    TensorProto(name="bad", data_type=1, dims=[3], raw_data=b"1234"),
    TensorProto(name="negative", data_type=1, dims=[-1], raw_data=b""),
    TensorProto(name="unknown", data_type=99, dims=[1], raw_data=b"1"),
    TensorProto(name="huge", data_type=1, dims=[2**62, 2**62, 0], raw_data=b""),
]


def elsewhere(**entries: str) -> TensorProto:
    """Return two float32 elements in another file, with what the model says of their place."""
    tensor = TensorProto(name="w", data_type=1, dims=[2], data_location="EXTERNAL")
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


ELSEWHERE = elsewhere(location="ü/weights.bin", offset="4096", length="8")
ODD += [
    ELSEWHERE,
    elsewhere(location="a", offset="007", length="08"),
    elsewhere(location="a", offset="1", length="9"),
    elsewhere(location="a", offset="9" * 19, length="8"),
    elsewhere(location="a" * 130, offset="0", length="8"),
    elsewhere(location="", offset="0", length="8"),
    elsewhere(location="a", offset="-1", length="8"),
    elsewhere(location="a", length="8", offset="0"),
    elsewhere(location="a", offset="0", length="8", checksum="0" * 40),
    elsewhere(location="a"),
]


def found_in(data: bytes) -> tuple[Any, ...]:
    """Return everything that a model holds, or why it is refused."""
    try:
        contents = parse(data)
    except TensorkeepError as error:
        return (str(error),)
    return (
        list(contents.tensors),
        [repr(place) for place in contents.tensors.values() if not place.source],
        dict(contents.external),
        {name: str(unknown) for name, unknown in contents.unknowns.items()},
    )


@pytest.mark.parametrize("tensor", ODD, ids=range(len(ODD)))
def test_one_look_finds_what_the_walk_finds(tensor: TensorProto, monkeypatch: pytest.MonkeyPatch) -> None:
    data = model_of(tensor).SerializeToString()
    quick = found_in(data)
    monkeypatch.setattr(_tensor, "read_plain", lambda reader, span: None)
    assert found_in(data) == quick


def test_a_place_in_another_file_takes_one_look() -> None:
    data = ELSEWHERE.SerializeToString()
    reader = MessageReader(data)
    reader.field_at(0, len(data))  # reads ahead
    found = read_plain(reader, ByteRange(0, len(data)))
    assert found is not None
    name, place = found
    assert isinstance(place, ExternalTensor)
    assert (name, place.location, place.offset, place.nbytes) == ("w", "ü/weights.bin", 4096, 8)


def test_one_look_at_a_place_in_another_file_finds_what_the_walk_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = model_of(ELSEWHERE).SerializeToString()
    changed = [
        whole[:at] + bytes([value]) + whole[at + 1 :]
        for at in range(len(whole))
        for value in {0, 1, ord("0"), 127, 128, 255, whole[at] ^ 1, (whole[at] + 1) % 256}
    ]
    quick = [found_in(data) for data in changed]
    monkeypatch.setattr(_tensor, "read_plain", lambda reader, span: None)
    assert [found_in(data) for data in changed] == quick


def long_model(**changed: TensorProto) -> ModelProto:
    """Return a model with many tensors after one another, which are read in one go."""
    tensors = {f"é{n}": numpy_helper.from_array(np.full((n % 3 + 1, 5), n, np.float32), f"é{n}") for n in range(300)}
    return model_of(*(tensors | changed).values())


def test_tensors_after_one_another_are_read_like_single_ones() -> None:
    odd = TensorProto(name="é150", data_type=6, dims=[2], int32_data=[7, 8])
    with tensorkeep.open(long_model(é150=odd).SerializeToString()) as opened:
        assert list(opened) == [f"é{n}" for n in range(300)]
        assert opened["é150"].load().tolist() == [7, 8]
        for n in (0, 1, 149, 151, 298, 299):
            assert np.array_equal(opened[f"é{n}"].load(), np.full((n % 3 + 1, 5), n, np.float32))


@pytest.mark.parametrize(
    "odd",
    [
        numpy_helper.from_array(np.ones((1, 5), np.float32), "é7"),  # a name of another one
        numpy_helper.from_array(np.ones((1, 5), np.float32), "é149"),  # the name of the one before
        TensorProto(name="é150", data_type=1, dims=[2], raw_data=bytes(9)),
        TensorProto(name="é150", data_type=1, dims=[2**62, 2**62], raw_data=b""),
    ],
    ids=["earlier name", "last name", "size", "shape"],
)
def test_an_odd_tensor_among_many_is_refused(odd: TensorProto) -> None:
    with pytest.raises(FormatError):
        parse(long_model(é150=odd))


def test_many_tensors_that_were_changed_anywhere_are_values_or_errors() -> None:
    whole = long_model().SerializeToString()
    chance = random.Random(3)
    for _ in range(300):
        data = bytearray(whole)
        data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            parse(bytes(data))
        except TensorkeepError:
            continue
