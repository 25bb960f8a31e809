"""Files that PaddlePaddle itself writes, and what it reads from them. It is slow to import: one program does all.

As a program: writes files of every form into the directory that it is given, each with what `paddle.load` returns.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.contracts.kind import ARRAYS
from tests.support.written_once import written_once


@cache
def written_by_paddle() -> Path:
    """Return the directory of the files."""
    return written_once("paddle", _write_by_paddle)


def _write_by_paddle(directory: Path) -> None:
    for what in ("states", "json", "pdmodel"):
        program = [sys.executable, "-W", "ignore", "-m", __name__, str(directory), what]
        env = os.environ | {"FLAGS_enable_pir_api": str(int(what != "pdmodel"))}
        done = subprocess.run(program, capture_output=True, text=True, timeout=240, check=False, env=env)
        assert not done.returncode, done.stderr


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


def _network() -> Any:
    import paddle

    class Network(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.linear = paddle.nn.Linear(3, 4)
            self.norm = paddle.nn.BatchNorm1D(4)
            self.embedding = paddle.nn.Embedding(10, 4)

        def forward(self, x: Any) -> Any:
            return self.norm(self.linear(x)) + self.embedding(paddle.zeros([1], dtype="int64"))

    paddle.seed(0)
    return Network()


def _write_states(directory: Path) -> None:
    import paddle

    def write(value: Any, name: str, **options: Any) -> None:
        paddle.save(value, str(directory / name), **options)
        loaded = paddle.load(str(directory / name), return_numpy=True)
        np.savez(directory / f"{name}.npz", **_flat(loaded))

    network = _network()
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


def _write_program(directory: Path, suffix: str) -> None:
    """Write a model for inference, once as Paddle 3 does and once as before, with its parameters by name."""
    import paddle

    network = _network()
    network.eval()
    path = str(directory / f"inference_{suffix}")
    paddle.jit.save(network, path, input_spec=[paddle.static.InputSpec([None, 3], "float32")])
    tensors = {(tensor.name if suffix == "json" else name): tensor for name, tensor in network.state_dict().items()}
    np.savez(f"{path}.pdiparams.npz", **{name: tensor.numpy() for name, tensor in tensors.items()})
    if suffix == "json":
        return
    parts = []
    for _, array in sorted(ARRAYS.items()):
        paddle.save(paddle.to_tensor(array), str(directory / "one.pdtensor"), use_binary_format=True)
        parts.append((directory / "one.pdtensor").read_bytes())
    (directory / "contract.pdiparams").write_bytes(b"".join(parts))
    paddle.enable_static()
    program = paddle.static.Program()
    for name, array in ARRAYS.items():
        program.global_block().create_var(name=name, shape=array.shape, dtype=str(array.dtype), persistable=True)
    program.desc.flush()
    (directory / "contract.pdmodel").write_bytes(program.desc.serialize_to_string())


if __name__ == "__main__":
    what = sys.argv[2]
    if what == "states":
        _write_states(Path(sys.argv[1]))
    else:
        _write_program(Path(sys.argv[1]), what)
