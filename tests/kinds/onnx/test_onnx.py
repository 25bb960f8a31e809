"""ONNX models written by the onnx package: every data type in every field, nested graphs, and other files."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import convert_model_to_external_data, set_external_data

import tensorkeep
from tensorkeep.errors import FormatError, LimitError, SourceMissingError, UnsupportedError
from tests.support.remote.fault_server import FaultServer

Array = npt.NDArray[Any]

TYPES = [number for name, number in TensorProto.DataType.items() if name not in {"UNDEFINED", "STRING"}]
WIDENED = {TensorProto.INT4: "I8", TensorProto.UINT4: "U8", TensorProto.INT2: "I8", TensorProto.UINT2: "U8"}


def model_of(*tensors: TensorProto, nodes: list[NodeProto] | None = None, **more: Any) -> ModelProto:
    graph = helper.make_graph(nodes or [], "graph", [], [], initializer=list(tensors))
    return helper.make_model(graph, producer_name="tests", **more)


def elements(number: int, shape: tuple[int, ...]) -> Array:
    """Return elements of a data type, of all kinds that it has."""
    dtype = helper.tensor_dtype_to_np_dtype(number)
    n = int(np.prod(shape))
    if number in {TensorProto.COMPLEX64, TensorProto.COMPLEX128}:
        return (np.arange(n) - 1j * np.arange(n)).astype(dtype).reshape(shape)
    signed = dtype.kind == "i" or dtype in {np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.int2)}
    numbers = np.arange(n) - (n // 2 if signed else 0)
    if number == TensorProto.BOOL:
        return (numbers % 2).astype(bool).reshape(shape)
    if dtype.itemsize == 1:
        span = {"int4": 16, "uint4": 16, "int2": 4, "uint2": 4}.get(dtype.name, 128 if dtype.kind == "i" else 16)
        numbers = numbers % span - (span // 2 if signed else 0)
    return numbers.astype(dtype).reshape(shape)


def same(found: Array, expected: Array) -> bool:
    if found.dtype != expected.dtype:  # integers narrower than a byte are widened
        expected = expected.astype(found.dtype)
    return found.shape == expected.shape and found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("shape", [(4, 6), (8,), (), (0, 3), (3, 5)], ids=str)
@pytest.mark.parametrize("number", TYPES, ids=TensorProto.DataType.Name)
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
def test_each_data_type(number: int, shape: tuple[int, ...], raw: bool, tmp_path: Path) -> None:
    array = elements(number, shape)
    tensor = numpy_helper.from_array(array, "w")
    if not raw:
        values = array.view(np.uint8).reshape(-1) if number in {27, 28} else array.reshape(-1)
        tensor = helper.make_tensor(
            "w", number, shape, values.tolist() if number not in {27, 28} else array.reshape(-1)
        )
    expected = numpy_helper.to_array(tensor)
    onnx.save(model_of(tensor), tmp_path / "a.onnx")

    with tensorkeep.open(tmp_path / "a.onnx") as file:
        bits = {23: 4, 27: 6, 28: 6}.get(number, 8)
        if array.size * bits % 8:
            assert "do not fill whole bytes" in str(file.unknowns["w"])
            return
        assert file["w"].dtype == WIDENED.get(number, file["w"].dtype)
        assert same(file["w"].load(), expected)
        assert same(file.load()["w"], expected)
        assert same(file["w"][..., 1:] if shape else file["w"][...], expected[..., 1:] if shape else expected)
        assert ("onnx.widened" in file.metadata) == (number in WIDENED)


@pytest.mark.parametrize("number", [1, 3, 6, 7, 10, 11, 13, 14, 22])
def test_elements_that_are_fields_of_their_own(number: int) -> None:
    array = elements(number, (3, 4))
    typed = helper.make_tensor("w", number, (3, 4), array.reshape(-1).tolist())
    whole = model_of(typed).SerializeToString()
    packed = typed.SerializeToString()
    bare = TensorProto(dims=[3, 4], data_type=number, name="w").SerializeToString()
    field = helper.tensor_dtype_to_field(number)
    key = TensorProto.DESCRIPTOR.fields_by_name[field].number
    width = {"float_data": 4, "double_data": 8}.get(field)
    for value in getattr(typed, field):  # as writers without [packed = true] do
        single = TensorProto(**{field: [value]}).SerializeToString()
        body = single[2:]
        bare += bytes([key << 3 | {4: 5, 8: 1, None: 0}[width]]) + body
    assert same(numpy_helper.to_array(TensorProto.FromString(bare)), array)
    model = model_of()
    model.graph.initializer.append(TensorProto.FromString(packed))
    data = splice(model.SerializeToString(), packed, bare)

    with tensorkeep.open(whole) as one, tensorkeep.open(data) as two:
        assert same(one["w"].load(), array)
        assert same(two["w"].load(), array)
        assert same(two["w"][1:, ::2], array[1:, ::2])


def splice(model: bytes, old: bytes, new: bytes) -> bytes:
    """Replace the only initializer of a model whose messages are short."""

    def field(key: int, payload: bytes) -> bytes:
        n = len(payload)
        return bytes([key]) + (bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7])) + payload

    graph = field(0x2A, old)
    before, after = model.split(graph)
    inner = field(0x2A, new)
    start = before.rindex(b"\x12\x05graph")
    head = before[: start - 2 if len(before[start:] + graph + after) < 128 + len(after) else start - 3]
    opset = after[after.rindex(b"\x42") :]
    return head + field(0x3A, b"\x12\x05graph" + inner) + opset


def test_strings_are_read_on_demand(tmp_path: Path) -> None:
    words = np.array([["a", "é"], ["", "long" * 100]], object)
    onnx.save(model_of(numpy_helper.from_array(words, "words")), tmp_path / "a.onnx")

    with tensorkeep.open(tmp_path / "a.onnx") as file:
        assert list(file) == []
        assert file.strings["words"].shape == (2, 2)
        assert file.strings["words"].load().tolist() == words.tolist()


def branch(name: str, *arrays: Array) -> Any:
    tensors = [numpy_helper.from_array(array, f"w{place}") for place, array in enumerate(arrays)]
    nodes = [helper.make_node("Constant", [], ["out"], value=numpy_helper.from_array(arrays[0]))]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)]
    return helper.make_graph(nodes, name, [], outputs, initializer=tensors)


def test_tensors_anywhere_in_the_model_have_names(tmp_path: Path) -> None:
    one, two = np.ones((2, 3), np.float32), np.arange(3)
    nodes = [
        helper.make_node("If", ["c"], ["r"], then_branch=branch("t", one, two), else_branch=branch("e", two)),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(two)),
        helper.make_node("Constant", [], ["float"], value_float=1.5),
        helper.make_node("Constant", [], ["floats"], value_floats=[1.5, 2.5]),
        helper.make_node("Constant", [], ["int"], value_int=-3),
        helper.make_node("Constant", [], ["ints"], value_ints=[1, -1, 1 << 40]),
        NodeProto(op_type="Constant", output=["no_ints"], attribute=[AttributeProto(name="value_ints")]),
        helper.make_node("Constant", [], ["text"], value_string="é"),
        helper.make_node("Constant", [], ["texts"], value_strings=["a", "b"]),
        helper.make_node("ConstantOfShape", ["k"], ["filled"], value=numpy_helper.from_array(two[:1])),
        helper.make_node("Custom", [], [], name="named", tables=[numpy_helper.from_array(a) for a in (one, two)]),
        helper.make_node("Custom", [], ["many"], graphs=[branch("a", one), branch("b", two)]),
    ]
    body = [helper.make_node("Constant", [], ["fk"], value=numpy_helper.from_array(one))]
    function = helper.make_function("own", "F", [], ["fk"], body, [helper.make_opsetid("", 23)])
    model = model_of(numpy_helper.from_array(one, "w"), nodes=nodes, functions=[function])
    training = model.training_info.add()
    training.algorithm.initializer.append(numpy_helper.from_array(two, "lr"))
    onnx.save(model, tmp_path / "a.onnx")

    with tensorkeep.open(tmp_path / "a.onnx") as file:
        assert {name: array.tolist() for name, array in file.load().items()} == {
            "w": one.tolist(),
            "k": two.tolist(),
            "float": 1.5,
            "floats": [1.5, 2.5],
            "int": -3,
            "ints": [1, -1, 1 << 40],
            "no_ints": [],
            "filled.value": [0],
            "named.tables.0": one.tolist(),
            "named.tables.1": two.tolist(),
            "r.then_branch.w0": one.tolist(),
            "r.then_branch.w1": two.tolist(),
            "r.then_branch.out": one.tolist(),
            "r.else_branch.w0": two.tolist(),
            "r.else_branch.out": two.tolist(),
            "many.graphs.0.w0": one.tolist(),
            "many.graphs.0.out": one.tolist(),
            "many.graphs.1.w0": two.tolist(),
            "many.graphs.1.out": two.tolist(),
            "own.F.fk": one.tolist(),
            "training_info.0.algorithm.lr": two.tolist(),
        }
        assert file.strings["text"].load().item() == "é"
        assert file.strings["texts"].load().tolist() == ["a", "b"]


def test_sparse_tensors_are_their_parts(tmp_path: Path) -> None:
    values = numpy_helper.from_array(np.array([1.5, 2.5], np.float32), "sparse")
    indices = numpy_helper.from_array(np.array([3, 7]), "")
    sparse = helper.make_sparse_tensor(values, indices, [4, 5])
    node = helper.make_node("Constant", [], ["k"], sparse_value=sparse)
    model = model_of(nodes=[node])
    model.graph.sparse_initializer.append(sparse)
    onnx.save(model, tmp_path / "a.onnx")

    with tensorkeep.open(tmp_path / "a.onnx") as file:
        assert {name: array.tolist() for name, array in file.load().items()} == {
            "sparse.values": [1.5, 2.5],
            "sparse.indices": [3, 7],
            "k.values": [1.5, 2.5],
            "k.indices": [3, 7],
        }
        assert json.loads(file.metadata["onnx.sparse"]) == {"sparse": [4, 5], "k": [4, 5]}


def test_metadata_and_the_way_to_safetensors(tmp_path: Path) -> None:
    model = model_of(
        numpy_helper.from_array(np.ones(3, np.float32), "w"),
        numpy_helper.from_array(np.arange(3).astype(ml_dtypes.int4), "q"),
        numpy_helper.from_array(np.array(["a"], object), "words"),
        producer_version="1",
        doc_string="text",
        model_version=7,
    )
    helper.set_model_props(model, {"names": "{0: 'cat'}"})
    onnx.save(model, tmp_path / "a.onnx")

    done = tensorkeep.convert(tmp_path / "a.onnx", tmp_path / "a.safetensors")

    assert done.left_out == {"words": "1 string"}
    with tensorkeep.open(tmp_path / "a.safetensors") as file:
        assert file.load()["q"].tolist() == [0, 1, 2]
        metadata = {key: text for key, text in file.metadata.items() if key in {"names"} or key.startswith("onnx.")}
    assert metadata == {
        "names": "{0: 'cat'}",
        "onnx.producer_name": "tests",
        "onnx.producer_version": "1",
        "onnx.doc_string": "text",
        "onnx.model_version": "7",
        "onnx.ir_version": str(model.ir_version),
        "onnx.opset_import": json.dumps({"": model.opset_import[0].version}, separators=(",", ":")),
        "onnx.widened": '{"q":"INT4"}',
    }
    assert tensorkeep.diff(tmp_path / "a.onnx", tmp_path / "a.safetensors").is_equal


# Other files

LARGE = {name: np.arange(start, start + 5000, dtype=np.float32) for start, name in enumerate(("a", "b/c", "d"))}


@pytest.fixture(params=["one file", "many files"])
def external(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    tensors = [numpy_helper.from_array(array, name) for name, array in LARGE.items()]
    small = numpy_helper.from_array(np.arange(3), "small")
    narrow = numpy_helper.from_array((np.arange(4001) % 16).astype(ml_dtypes.uint4), "narrow")
    path = tmp_path / "model" / "a.onnx"
    path.parent.mkdir()
    one = request.param == "one file"
    onnx.save_model(
        model_of(*tensors, small, narrow),
        path,
        save_as_external_data=True,
        all_tensors_to_one_file=one,
        location="a.data" if one else None,
    )
    return path


def test_other_files(external: Path, tmp_path: Path) -> None:
    with tensorkeep.open(external) as file:
        assert {name: array.tolist() for name, array in file.load().items()} == {
            **{name: array.tolist() for name, array in LARGE.items()},
            "small": [0, 1, 2],
            "narrow": [place % 16 for place in range(4001)],
        }
        assert file["a"][10:12].tolist() == [10.0, 11.0]
        assert file.shard_of("small") == "a.onnx"
        assert file.shard_of("a") == file.shard_of("narrow") == "a.data" or len(file.sources) == 5
        files = {external.name, *(entry.name for entry in external.parent.iterdir())}
        assert set(file.sources) == files
        assert {each.file for each in file.describe().files} == files
    tensorkeep.convert(external, tmp_path / "out.safetensors")
    assert tensorkeep.diff(external, tmp_path / "out.safetensors").is_equal
    assert tensorkeep.verify(external).n_unprotected == 5


def test_other_files_on_a_server(external: Path, tmp_path: Path) -> None:
    files = {entry.name: entry.read_bytes() for entry in external.parent.iterdir()}
    with FaultServer(files) as server:
        with tensorkeep.open(f"{server.url}a.onnx") as file:
            assert file["b/c"][-2:].tolist() == LARGE["b/c"][-2:].tolist()
        tensorkeep.fetch(f"{server.url}a.onnx", tmp_path / "fetched")
    assert {entry.name for entry in (tmp_path / "fetched").iterdir()} >= set(files)


def externals(location: str, **more: Any) -> TensorProto:
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "w")
    set_external_data(tensor, location, **more)
    tensor.ClearField("raw_data")
    return tensor


@pytest.mark.parametrize(
    "location",
    ["../x", "/etc/passwd", "a/../../x", "C:\\x", "c:x", "a\\b", "", "http://example.com/x", "a\0b", ".", "a/"],
)
def test_paths_that_lead_elsewhere_are_refused(location: str, tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(model_of(externals(location)).SerializeToString())
    (tmp_path.parent / "x").write_bytes(bytes(16))

    with pytest.raises(UnsupportedError, match="not below the directory"):
        tensorkeep.open(tmp_path / "a.onnx")


def test_links_lead_only_where_the_model_is_linked_from(tmp_path: Path) -> None:
    blobs, snapshot, outside = (tmp_path / name for name in ("blobs", "snapshot", "outside"))
    for directory in (blobs, snapshot, outside):
        directory.mkdir()
    (blobs / "1").write_bytes(model_of(externals("w.bin")).SerializeToString())
    for directory in (blobs, outside):
        (directory / "2").write_bytes(np.ones(4, np.float32).tobytes())
    os.symlink("../blobs/1", snapshot / "a.onnx")
    os.symlink("../blobs/2", snapshot / "w.bin")

    with tensorkeep.open(snapshot / "a.onnx") as file:
        assert file["w"].load().tolist() == [1.0] * 4
    (snapshot / "w.bin").unlink()
    os.symlink("../outside/2", snapshot / "w.bin")
    with pytest.raises(UnsupportedError, match="a link out of the directory"):
        tensorkeep.open(snapshot / "a.onnx")


def test_other_files_must_be_there_and_long_enough(tmp_path: Path) -> None:
    data = model_of(externals("w.bin", offset=8)).SerializeToString()
    (tmp_path / "a.onnx").write_bytes(data)

    with pytest.raises(SourceMissingError):
        tensorkeep.open(tmp_path / "a.onnx")
    (tmp_path / "w.bin").write_bytes(bytes(23))
    with pytest.raises(FormatError, match=r"ends before tensor `w` does .*at least 24 bytes, found 23"):
        tensorkeep.open(tmp_path / "a.onnx")
    with pytest.raises(UnsupportedError, match="Open it by its path"):
        tensorkeep.open(data)


@pytest.mark.parametrize("more", [{"length": 15}, {"offset": -1}, {"offset": 1 << 70}], ids=str)
def test_numbers_that_fit_no_tensor(more: dict[str, int], tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(16))
    (tmp_path / "a.onnx").write_bytes(model_of(externals("w.bin", **more)).SerializeToString())

    with pytest.raises(FormatError, match="tensor `w`: its"):
        tensorkeep.open(tmp_path / "a.onnx")


def test_the_checksum_of_another_file_is_checked_once(tmp_path: Path) -> None:
    data = np.arange(8, dtype=np.float32).tobytes()
    (tmp_path / "w.bin").write_bytes(data)
    checksum = hashlib.sha1(data).hexdigest()
    first, second = (externals("w.bin", offset=offset, checksum=checksum) for offset in (0, 16))
    second.name = "v"
    (tmp_path / "a.onnx").write_bytes(model_of(first, second).SerializeToString())

    report = tensorkeep.verify(tmp_path / "a.onnx")
    assert (report.is_whole, report.n_checked, report.n_unprotected) == (True, 2, 0)
    (tmp_path / "w.bin").write_bytes(data[:-1] + b"\1")
    (finding,) = tensorkeep.verify(tmp_path / "a.onnx").findings
    assert (finding.kind, finding.shard) == ("file", "w.bin")
    with pytest.raises(tensorkeep.errors.IntegrityError):
        tensorkeep.convert(tmp_path / "a.onnx", tmp_path / "out.safetensors")


def test_many_tensors_in_another_file_however_they_are_written(tmp_path: Path) -> None:
    """Most are found in one look; one in the model, and others whose entries differ, are between them."""
    arrays = {f"é{number}": np.arange(3, dtype=np.float32) + number for number in range(1000)}
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    convert_model_to_external_data(model := model_of(*tensors), location="w.bin", size_threshold=0)
    onnx.save(model, tmp_path / "a.onnx")
    written = onnx.load(tmp_path / "a.onnx", load_external_data=False)
    written.graph.initializer[100].CopyFrom(tensors[100])
    written.graph.initializer[200].doc_string = "described"
    written.graph.initializer[300].external_data.add(key="checksum", value="0" * 40)
    (tmp_path / "a.onnx").write_bytes(written.SerializeToString())

    loaded = tensorkeep.load(tmp_path / "a.onnx")
    assert loaded.keys() == arrays.keys()
    assert all(np.array_equal(loaded[name], array) for name, array in arrays.items())

    written.graph.initializer[500].name = "é499"
    with pytest.raises(FormatError, match="two tensors are called `é499`"):
        tensorkeep.open(written.SerializeToString())


def test_tensors_at_the_same_place_of_another_file_are_stored_once(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    tensors = [externals("w.bin") for _ in range(3)]
    tensors[1].name, tensors[2].name = "v", "integers"
    tensors[2].data_type = TensorProto.INT32
    (tmp_path / "a.onnx").write_bytes(model_of(*tensors).SerializeToString())

    done = tensorkeep.convert(tmp_path / "a.onnx", tmp_path / "a.safetensors")

    assert (done.n_tensors, done.ties) == (2, {"v": "w"})
    assert tensorkeep.load(tmp_path / "a.safetensors")["v"].tolist() == [0, 1, 2, 3]


def test_many_tensors_at_one_place_of_another_file_are_not_copied(tmp_path: Path) -> None:
    """Their lengths differ, so that none is another one."""
    (tmp_path / "w.bin").write_bytes(bytes(2**20))
    tensors = [externals("w.bin") for _ in range(1500)]
    for number, tensor in enumerate(tensors):
        tensor.name, tensor.dims[0] = f"w{number}", 2**18 - number
    (tmp_path / "a.onnx").write_bytes(model_of(*tensors).SerializeToString())

    for use in (tensorkeep.load, lambda path: tensorkeep.convert(path, tmp_path / "a.safetensors")):
        with pytest.raises(LimitError, match="many times the size of the file"):
            use(tmp_path / "a.onnx")
    assert tensorkeep.load(tmp_path / "a.onnx", only=["w9"])["w9"].shape == (2**18 - 9,)


def test_constants_in_other_files(tmp_path: Path) -> None:
    array = np.arange(2000, dtype=np.float32)
    model = model_of(nodes=[helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(array, "k"))])
    convert_model_to_external_data(model, location="k.bin", convert_attribute=True)
    onnx.save(model, tmp_path / "a.onnx")

    assert tensorkeep.load(tmp_path / "a.onnx")["k"].tolist() == array.tolist()


def test_many_small_tensors_on_a_server_are_found_in_few_requests() -> None:
    tensors = [numpy_helper.from_array(np.full(500, place, np.float32), f"layers.{place}") for place in range(5_000)]
    data = model_of(*tensors).SerializeToString()  # 10 MB

    with FaultServer({"a.onnx": data}) as server, tensorkeep.open(f"{server.url}a.onnx") as file:
        assert len(file) == 5_000
        assert len(server.requests) <= 12
        n_opening = len(server.requests)
        assert file["layers.4321"][3] == 4321
        assert len(server.requests) == n_opening + 1
