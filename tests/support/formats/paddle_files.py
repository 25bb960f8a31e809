"""Files that PaddlePaddle itself writes, and what it reads from them. It is slow to import: one program does all.

As a program: writes files of every form into the directory that it is given, each with what `paddle.load` returns.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.contracts.kind import ARRAYS


@cache
def written_by_paddle() -> Path:
    """Return the directory of the files."""
    directory = Path(tempfile.mkdtemp(prefix="paddle-files-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    program = [sys.executable, "-W", "ignore", "-m", __name__, str(directory)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=240, check=False)
    assert not done.returncode, done.stderr
    return directory


def loaded_by_paddle(name: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return what `paddle.load(name, return_numpy=True)` returns, with dotted names."""
    with np.load(written_by_paddle() / f"{name}.npz") as arrays:
        return dict(arrays)


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, np.ndarray):
        return {name or "tensor": value}
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    )
    parts: dict[str, Any] = {}
    for key, child in children:
        parts |= _flat(child, f"{name}.{key}" if name else str(key))
    return parts


def _write_all(directory: Path) -> None:
    import paddle

    def write(value: Any, name: str, **options: Any) -> None:
        paddle.save(value, str(directory / name), **options)
        loaded = paddle.load(str(directory / name), return_numpy=True)
        np.savez(directory / f"{name}.npz", **_flat(loaded))

    class Network(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.linear = paddle.nn.Linear(3, 4)
            self.norm = paddle.nn.BatchNorm1D(4)
            self.embedding = paddle.nn.Embedding(10, 4)

        def forward(self, x: Any) -> Any:
            return self.norm(self.linear(x)) + self.embedding(paddle.zeros([1], dtype="int64"))

    paddle.seed(0)
    network = Network()
    state = network.state_dict()
    for protocol in (2, 3, 4):
        write(state, f"protocol{protocol}.pdparams", protocol=protocol)
    write({name: tensor.astype("bfloat16") for name, tensor in state.items()}, "bfloat16.pdparams")
    dtypes = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64")
    write({dtype: paddle.to_tensor(np.ones((2, 3), dtype)) for dtype in dtypes}, "dtypes.pdparams")
    schedule = paddle.optimizer.lr.NoamDecay(d_model=100, warmup_steps=100)
    optimizer = paddle.optimizer.Adam(schedule, parameters=network.parameters())
    network(paddle.ones([2, 3])).sum().backward()
    optimizer.step()
    schedule.step()
    write(optimizer.state_dict(), "optimizer.pdopt")
    write({"model": state, "optimizer": optimizer.state_dict(), "epoch": 3}, "nested.pdparams")
    write({"w": network.linear.weight.astype("bfloat16"), "by": [network.linear.bias]}, "nested_bfloat16.pdparams")
    write(network.linear.weight, "tensor.pdtensor")
    dense = paddle.base.core.DenseTensor()
    dense.set(np.arange(6, dtype="float32").reshape(2, 3), paddle.CPUPlace())
    write([dense, {"again": dense}, dense], "dense.pdtensor")
    write([dense, {"again": dense}, dense], "dense2.pdtensor", protocol=2)
    write({name: paddle.to_tensor(array) for name, array in ARRAYS.items()}, "contract.pdparams")


if __name__ == "__main__":
    _write_all(Path(sys.argv[1]))
