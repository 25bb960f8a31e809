"""Files with more than plain tensors, to be broken: strings, records, quantized blocks, nested graphs, links."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["WRITERS"]

_KEPT = Path(__file__).parents[2] / "tests" / "kinds" / "hdf5" / "files"

_FIELDS: Any = [("a", "<f4", (2,)), ("packed", ">f8"), ("text", "U2"), ("flag", "u1"), ("in", [("z", "<f4")])]
_RECORDS = np.zeros(3, _FIELDS)
_ARRAYS: dict[str, Any] = {
    "plain": np.arange(6, dtype=np.float32).reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "swapped": np.arange(3, dtype=">i8"),
    "empty": np.zeros((0, 3)),
    "text": np.array(["é", "longer"]),
    "bytes": np.array([b"a"]),
    "times": np.array([1, 2], "M8[s]"),
    "records": _RECORDS,
    "raw": np.zeros(2, "V2"),
}


def _npz(directory: Path) -> Path:
    np.savez(directory / "a.npz", objects=np.array([{}], object), **_ARRAYS)
    return directory / "a.npz"


def _deflated_npz(directory: Path) -> Path:
    np.savez_compressed(directory / "a.npz", **_ARRAYS)
    return directory / "a.npz"


def _npy(directory: Path) -> Path:
    np.save(directory / "a.npy", _RECORDS)
    return directory / "a.npy"


def _hdf5(libver: str) -> Callable[[Path], Path]:
    def write(directory: Path) -> Path:
        import h5py

        with h5py.File(directory / "a.h5", "w", libver=libver) as file:
            _fill(file)
        return directory / "a.h5"

    return write


def _kept(name: str) -> Callable[[Path], Path]:
    """Copy a file that no installed version of its library writes."""
    return lambda directory: Path(shutil.copy(_KEPT / name, directory))


def _fill(file: Any) -> None:
    import h5py

    file["plain"] = _ARRAYS["plain"]
    file["text"] = ["é", "longer"]
    file.create_dataset("chunks of text", data=[b"a", b"bc", b"", b"d"], dtype="S3", chunks=(3,), compression="gzip")
    chunked: Any = {"chunks": (2, 3), "compression": "gzip", "shuffle": True, "fletcher32": True}
    file.create_dataset("group/chunked", data=np.arange(60.0).reshape(6, 10), maxshape=(None, None), **chunked)
    file.create_dataset("group/growing", data=np.arange(40), chunks=(3,), maxshape=(None,))
    file.create_dataset("fast", data=np.arange(50) % 7, chunks=(20,), compression="lzf")
    file.create_dataset("scaled", data=np.arange(50), chunks=(20,), scaleoffset=0)
    file.create_dataset("rounded", data=np.arange(50) / 8, chunks=(20,), scaleoffset=2)
    file.create_dataset("filled", (5,), "f4", fillvalue=2.0)
    file["records"] = np.zeros(2, [("x", "f4"), ("y", "f8")])
    file["complex"] = np.ones(2, complex)
    file["bools"] = np.array([True, False])
    file["bfloat16"] = np.ones(2, "V2")
    file["bfloat16"].attrs["dtype"] = "bfloat16"
    file["soft"] = h5py.SoftLink("/plain")
    file["outside"] = h5py.ExternalLink("other.h5", "/a")
    file["again"] = file["group"]
    for number in range(12):
        file["group"].attrs[f"key {number}"] = "v" * number
        file[f"many/{number}"] = np.ones(1, "f4")


def _legacy_keras(directory: Path) -> Path:
    import h5py

    with h5py.File(directory / "a.h5", "w") as file:
        file.attrs["layer_names"] = [b"dense"]
        file.attrs["model_config"] = '{"class_name": "Sequential", "config": {"layers": []}}'
        file["model_weights/dense/dense/kernel:0"] = _ARRAYS["plain"]
        file["model_weights/dense"].attrs["weight_names"] = [b"dense/kernel:0"]
        file["optimizer_weights/adam/m:0"] = np.ones(2)
    return directory / "a.h5"


def _gguf(directory: Path) -> Path:
    import gguf

    writer = gguf.GGUFWriter(directory / "a.gguf", "llama")
    writer.add_array("tokens", ["a", "b", "é"])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_bool("flag", True)
    rng = np.random.default_rng(0)
    for name in ("Q4_K", "Q8_0", "IQ1_M", "MXFP4"):
        type_ = gguf.GGMLQuantizationType[name]
        n_per_block, nbytes = gguf.GGML_QUANT_SIZES[type_]
        writer.add_tensor(name, rng.integers(0, 255, (2, 256 // n_per_block * nbytes), "u1"), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return directory / "a.gguf"


def _onnx(directory: Path) -> Path:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = [
        numpy_helper.from_array(_ARRAYS["plain"], "a"),
        helper.make_tensor("text", TensorProto.STRING, (2,), [b"x", b"yy"]),
        helper.make_tensor("half", TensorProto.FLOAT16, (3,), [1.0, 2.0, 3.0]),
        helper.make_tensor("int4", TensorProto.INT4, (3,), [1, -2, 3]),
        helper.make_tensor("fp8", TensorProto.FLOAT8E4M3FN, (2,), [1.0, 2.0]),
    ]
    values = helper.make_tensor("values", TensorProto.FLOAT, (2,), [1.0, 2.0])
    indices = helper.make_tensor("indices", TensorProto.INT64, (2,), [0, 3])
    constant = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.ones(3, np.float32)))
    body = helper.make_graph([constant], "body", [], [], [numpy_helper.from_array(np.ones(2), "w")])
    nodes = [
        helper.make_node("Loop", ["a", "a"], ["out"], body=body),
        helper.make_node("Constant", [], ["floats"], value_floats=[1.0, 2.0]),
    ]
    sparse = [helper.make_sparse_tensor(values, indices, [5])]
    graph = helper.make_graph(nodes, "graph", [], [], weights, sparse_initializer=sparse)
    onnx.save(helper.make_model(graph), directory / "a.onnx")
    return directory / "a.onnx"


def _feather(compression: str) -> Callable[[Path], Path]:
    def write(directory: Path) -> Path:
        import pyarrow as pa
        from pyarrow import feather

        table = pa.table({
            "numbers": pa.array(np.arange(50.0)),
            "text": pa.array(["x"] * 50),
            "nulls": pa.array([None] + [1] * 49),
            "rows": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(100, dtype="f4")), 2),
            "structs": pa.array([{"p": 1, "q": 2.0}] * 50),
            "codes": pa.array(["u"] * 50).dictionary_encode(),
            "bools": pa.array([True] * 50),
            "lists": pa.array([[1]] * 50),
        })
        feather.write_feather(table, directory / "a.feather", compression=compression, chunksize=20)
        return directory / "a.feather"

    return write


def _msgpack(directory: Path) -> Path:
    from flax import serialization

    chunks = {"0": np.ones(2), "1": np.ones(2)}
    state = {
        "a": {"k": _ARRAYS["plain"], "c": np.ones(2, complex), "h": np.ones(3, ml_dtypes.bfloat16)},
        "chunked": {"__msgpack_chunked_array__": True, "shape": {"0": 4}, "chunks": chunks},
        "scalar": np.float32(2),
        "plain": ["x", 7, 1 + 2j, None],
    }
    (directory / "a.msgpack").write_bytes(serialization.msgpack_serialize(state))
    return directory / "a.msgpack"


def _tensorflow(directory: Path) -> Path:
    import tensorflow as tf

    tf.raw_ops.SaveV2(
        prefix=os.fspath(directory / "a"),
        tensor_names=["a", "text", "empty", "scalar", "part"],
        shape_and_slices=["", "", "", "", "4 0,2"],
        tensors=[
            _ARRAYS["plain"],
            tf.constant(["x", "yyy"]),
            np.zeros((0, 2), np.float32),
            np.int64(3),
            np.ones(2, np.float32),
        ],
    )
    return directory / "a.index"


WRITERS: dict[str, Callable[[Path], Path]] = {
    "RichNpz": _npz,
    "RichDeflatedNpz": _deflated_npz,
    "RichNpy": _npy,
    "RichHdf5": _hdf5("earliest"),
    "RichNewHdf5": _hdf5("latest"),
    "RichHdf5OfVersion2": _kept("written-by-hdf5-2.h5"),
    "RichHdf5OfSuperblock1": _kept("superblock-1.h5"),
    "RichLegacyKeras": _legacy_keras,
    "RichGguf": _gguf,
    "RichOnnx": _onnx,
    "RichFeather": _feather("uncompressed"),
    "RichFeatherInLz4": _feather("lz4"),
    "RichFeatherInZstd": _feather("zstd"),
    "RichMsgpack": _msgpack,
    "RichTensorflow": _tensorflow,
}
"""Name of a kind of seed to what writes it below a directory, and returns the path to open."""
