"""How each format's own library writes, lists, loads and slices a file of tensors: one record per format."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

__all__ = ["FORMATS", "WORKS", "Array", "ForeignFormat", "arrays"]

Array = np.ndarray[Any, Any]

WORKS = frozenset({"list", "load-many", "load-large", "load-cold", "slice", "convert"})
"""What is measured of a format."""


class ForeignFormat(msgspec.Struct, frozen=True):
    """A format, as its own library works with it.

    Attributes:
        name: Its name in cases and in the report.
        suffix: Of its files.
        library: The own library, for the report.
        write: Writes arrays by name; returns the path to open.
        listed: Opens a file and lists the name, shape and dtype of every tensor.
        load: Loads all tensors as arrays.
        rows: Reads the first rows of a tensor.
        ztensor_reads: Which files ztensor reads: those of many tensors, and large ones.
        loops: What the own library does in Python, or with a copy of each tensor: `"list"`, `"load-many"`,
            `"load-large"`. There, tensorkeep must be twice as fast.
        row_name: The tensor to read rows of, as tensorkeep calls it.
        works: What is measured, of `WORKS`.
    """

    name: str
    suffix: str
    library: str
    write: Callable[[Path, Iterator[tuple[str, Array]]], Path]
    listed: Callable[[Path], Any]
    load: Callable[[Path], Any]
    rows: Callable[[Path, str, int], Any]
    ztensor_reads: frozenset[str] = frozenset()
    loops: frozenset[str] = frozenset()
    row_name: str = "layers.1.weight"
    works: frozenset[str] = WORKS


def arrays(n_tensors: int, shape: tuple[int, ...]) -> Iterator[tuple[str, Array]]:
    """Yield float32 arrays by name, made when asked for.

    Args:
        n_tensors: How many.
        shape: Elements of each.
    """
    block = np.random.default_rng(0).standard_normal(shape, np.float32)
    for at in range(n_tensors):
        yield f"layers.{at}.weight", block + np.float32(at)


# GGUF


def _write_gguf(path: Path, tensors: Iterator[tuple[str, Array]]) -> Path:
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "llama", use_temp_file=False)
    for name, array in tensors:
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf(path: Path) -> Any:
    from gguf import GGUFReader

    return GGUFReader(path)


# NumPy


def _write_npz(path: Path, tensors: Iterator[tuple[str, Array]]) -> Path:
    np.savez(path, allow_pickle=False, **dict(tensors))
    return path


def _listed_npz(path: Path) -> Any:
    found = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            with archive.open(name) as member:
                np.lib.format.read_magic(member)
                found[name] = np.lib.format.read_array_header_1_0(member)
    return found


def _load_npz(path: Path) -> Any:
    with np.load(path) as archive:
        return dict(archive)


# HDF5


def _write_h5(path: Path, tensors: Iterator[tuple[str, Array]]) -> Path:
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in tensors:
            file.create_dataset(name, data=array)
    return path


def _load_h5(path: Path) -> Any:
    import h5py

    with h5py.File(path) as file:
        return {name: dataset[()] for name, dataset in file.items()}


def _listed_h5(path: Path) -> Any:
    import h5py

    with h5py.File(path) as file:
        return {name: (dataset.shape, dataset.dtype) for name, dataset in file.items()}


def _rows_of_h5(path: Path, name: str, n_rows: int) -> Any:
    import h5py

    with h5py.File(path) as file:
        return file[name][:n_rows]


# ONNX


def _write_onnx(path: Path, tensors: Iterator[tuple[str, Array]]) -> Path:
    import onnx
    from onnx import helper, numpy_helper

    graph = helper.make_graph([], "weights", [], [], [numpy_helper.from_array(a, name) for name, a in tensors])
    onnx.save(
        helper.make_model(graph), path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=2**20
    )
    return path


def _onnx(path: Path) -> Any:
    import onnx

    return onnx.load(path, load_external_data=False).graph.initializer


def _load_onnx(path: Path) -> Any:
    import onnx
    from onnx import numpy_helper

    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}


def _rows_of_onnx(path: Path, name: str, n_rows: int) -> Any:
    from onnx import numpy_helper

    tensor = next(tensor for tensor in _onnx(path) if tensor.name == name)
    return numpy_helper.to_array(tensor, os.fspath(path.parent))[:n_rows].copy()


# Flax


def _write_msgpack(path: Path, tensors: Iterator[tuple[str, Array]]) -> Path:
    from flax import serialization

    path.write_bytes(serialization.msgpack_serialize(dict(tensors)))
    return path


def _load_msgpack(path: Path) -> Any:
    from flax import serialization

    return serialization.msgpack_restore(path.read_bytes())


# TensorFlow


def _write_bundle(path: Path, tensors: Iterator[tuple[str, Array]]) -> Path:
    import tensorflow as tf

    names, values = zip(*tensors, strict=True)
    tf.raw_ops.SaveV2(prefix=os.fspath(path), tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
    return path.with_name(f"{path.name}.index")


def _bundle(path: Path) -> Any:
    import tensorflow as tf

    return tf.train.load_checkpoint(os.fspath(path.with_suffix("")))


def _listed_bundle(path: Path) -> Any:
    reader = _bundle(path)
    return reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()


def _load_bundle(path: Path) -> Any:
    reader = _bundle(path)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


# Paddle


def _write_pdparams(path: Path, tensors: Iterator[tuple[str, Array]]) -> Path:
    import paddle

    paddle.save({name: paddle.to_tensor(array) for name, array in tensors}, os.fspath(path))
    return path


def _load_pdparams(path: Path) -> Any:
    import paddle

    return paddle.load(os.fspath(path), return_numpy=True)


# Arrow


def _write_arrow(path: Path, tensors: Iterator[tuple[str, Array]]) -> Path:
    import pyarrow as pa

    columns = {name: pa.FixedShapeTensorArray.from_numpy_ndarray(array) for name, array in tensors}
    table = pa.table(columns)
    with pa.OSFile(os.fspath(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return path


def _arrow(path: Path) -> Any:
    import pyarrow as pa

    return pa.ipc.open_file(pa.memory_map(os.fspath(path))).read_all()


def _load_arrow(path: Path) -> Any:
    table = _arrow(path)
    return {name: table[name].chunk(0).to_numpy_ndarray() for name in table.column_names}


FORMATS = (
    ForeignFormat(
        "gguf",
        ".gguf",
        "gguf",
        _write_gguf,
        lambda path: {tensor.name: (tensor.shape, tensor.tensor_type) for tensor in _gguf(path).tensors},
        lambda path: {tensor.name: tensor.data for tensor in _gguf(path).tensors},
        lambda path, name, n_rows: next(t.data for t in _gguf(path).tensors if t.name == name)[:n_rows].copy(),
        frozenset({"many", "large"}),
        frozenset({"list", "load-many"}),
    ),
    ForeignFormat(
        "npz",
        ".npz",
        "numpy",
        _write_npz,
        _listed_npz,
        _load_npz,
        lambda path, name, n_rows: np.load(path)[name][:n_rows],
        frozenset({"many", "large"}),
        frozenset({"list", "load-many", "load-large"}),
    ),
    ForeignFormat("hdf5", ".h5", "h5py", _write_h5, _listed_h5, _load_h5, _rows_of_h5, frozenset({"large"})),
    ForeignFormat(
        "onnx",
        ".onnx",
        "onnx",
        _write_onnx,
        lambda path: {tensor.name: (tensor.dims, tensor.data_type) for tensor in _onnx(path)},
        _load_onnx,
        _rows_of_onnx,
        frozenset({"many"}),
    ),
    ForeignFormat(
        "msgpack",
        ".msgpack",
        "flax",
        _write_msgpack,
        lambda path: {name: (array.shape, array.dtype) for name, array in _load_msgpack(path).items()},
        _load_msgpack,
        lambda path, name, n_rows: _load_msgpack(path)[name][:n_rows],
    ),
    ForeignFormat(
        "tensorflow",
        "",
        "tensorflow",
        _write_bundle,
        _listed_bundle,
        _load_bundle,
        lambda path, name, n_rows: _bundle(path).get_tensor(name)[:n_rows],
    ),
    ForeignFormat(
        "paddle",
        ".pdparams",
        "paddle",
        _write_pdparams,
        lambda path: {name: (array.shape, array.dtype) for name, array in _load_pdparams(path).items()},
        _load_pdparams,
        lambda path, name, n_rows: _load_pdparams(path)[name][:n_rows],
    ),
    ForeignFormat(
        "arrow",
        ".arrow",
        "pyarrow",
        _write_arrow,
        lambda path: {field.name: field.type for field in _arrow(path).schema},
        _load_arrow,
        lambda path, name, n_rows: _arrow(path)[name].chunk(0).to_numpy_ndarray()[:n_rows].copy(),
    ),
)
"""All formats, in the order of the report."""
