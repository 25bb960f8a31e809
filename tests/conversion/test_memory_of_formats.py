"""A conversion of any format takes less memory than its largest tensor, however many there are."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import onnx
import openvino
import pyarrow as pa
import pyarrow.feather
import pytest
import torch
from onnx import helper, numpy_helper
from openvino import opset13
from tensorizer import TensorSerializer

import tensorkeep
from tests.support.peak_memory import with_peak

Arrays = dict[str, npt.NDArray[Any]]

TENSOR_NBYTES = 16 * 2**20
N_TENSORS = 4


def arrays() -> Arrays:
    numbers = np.arange(TENSOR_NBYTES // 4, dtype=np.float32).reshape(-1, 1024)
    return {f"w{number}": numbers + number for number in range(N_TENSORS)}


def exported(name: str) -> Callable[[Arrays, Path], Path]:
    def write(tensors: Arrays, directory: Path) -> Path:
        tensorkeep.save(tensors, directory / "a.safetensors")
        tensorkeep.export(directory / "a.safetensors", directory / name)
        (directory / "a.safetensors").unlink()
        return directory / name

    return write


def deflated_npz(tensors: Arrays, directory: Path) -> Path:
    with zipfile.ZipFile(directory / "a.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in tensors.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array)
    return directory / "a.npz"


def chunked_hdf5(tensors: Arrays, directory: Path) -> Path:
    with h5py.File(directory / "a.h5", "w") as file:
        for name, array in tensors.items():
            file.create_dataset(name, data=array, chunks=(128, 1024), compression="gzip", compression_opts=1)
    return directory / "a.h5"


def keras_archive(tensors: Arrays, directory: Path) -> Path:
    with h5py.File(directory / "model.weights.h5", "w") as file:
        for name, array in tensors.items():
            file[f"layers/{name}/vars/0"] = array
    with zipfile.ZipFile(directory / "a.keras", "w") as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr("config.json", '{"module": "keras", "class_name": "Sequential", "config": {}}')
        archive.write(directory / "model.weights.h5", "model.weights.h5")
    (directory / "model.weights.h5").unlink()
    return directory / "a.keras"


def onnx_model(tensors: Arrays, directory: Path) -> Path:
    weights = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    onnx.save(helper.make_model(helper.make_graph([], "net", [], [], initializer=weights)), directory / "a.onnx")
    return directory / "a.onnx"


def openvino_model(tensors: Arrays, directory: Path) -> Path:
    results = [opset13.result(opset13.constant(array, name=name)) for name, array in tensors.items()]
    openvino.save_model(openvino.Model(results, [], "net"), directory / "a.xml", compress_to_fp16=False)
    return directory / "a.xml"


def arrow(tensors: Arrays, directory: Path) -> Path:
    columns = {name: pa.FixedSizeListArray.from_arrays(array.reshape(-1), 1024) for name, array in tensors.items()}
    pyarrow.feather.write_feather(pa.table(columns), str(directory / "a.feather"), compression="uncompressed")
    return directory / "a.feather"


def paddle_state(tensors: Arrays, directory: Path) -> Path:
    (directory / "a.pdparams").write_bytes(pickle.dumps(tensors, protocol=4))
    return directory / "a.pdparams"


def tensorizer_file(tensors: Arrays, directory: Path) -> Path:
    serializer = TensorSerializer(str(directory / "a.tensors"))
    serializer.write_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()})
    serializer.close()
    return directory / "a.tensors"


WRITERS: dict[str, Callable[[Arrays, Path], Path]] = {
    **{name: exported(name) for name in ("a.npz", "a.gguf", "a.h5", "a.msgpack", "a.index")},
    **{write.__name__: write for write in (deflated_npz, chunked_hdf5, keras_archive, onnx_model, openvino_model)},
    **{write.__name__: write for write in (arrow, paddle_state, tensorizer_file)},
}


@pytest.mark.parametrize("form", WRITERS)
def test_a_conversion_takes_less_memory_than_one_tensor(form: str, tmp_path: Path) -> None:
    path = WRITERS[form](arrays(), tmp_path)

    n_tensors, peak_nbytes = with_peak(_convert, path, tmp_path / "converted.safetensors")

    assert n_tensors == N_TENSORS
    assert peak_nbytes < TENSOR_NBYTES
    with tensorkeep.open(tmp_path / "converted.safetensors") as converted:
        assert sorted(float(lazy[-1, -1]) - TENSOR_NBYTES // 4 + 1 for lazy in converted.values()) == [
            *range(N_TENSORS)
        ]


def _convert(source: Path, target: Path) -> int:
    return tensorkeep.convert(source, target).n_tensors
