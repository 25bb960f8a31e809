"""Files that TensorFlow itself writes, and what it reads from them. It is slow to import: one program does all.

As a program: writes checkpoints, SavedModels and graphs into the directory that it is given. `NAME.json` beside a
checkpoint has the bytes, dtype and shape of each tensor as `tf.train.load_checkpoint` returns it, by key.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.contracts.kind import ARRAYS
from tests.support.written_once import written_once

DTYPES = (
    *("float32", "float64", "float16", "bfloat16", "bool", "complex64", "complex128"),
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float8_e5m2", "float8_e4m3fn", "int4", "uint4", "int2", "uint2", "float4_e2m1fn"),
    *("qint8", "quint8", "qint32"),
)
"""All dtypes that variables of TensorFlow 2.21 can have on a CPU, apart from strings."""


_NARROW = {"int4", "uint4", "int2", "uint2"}


@cache
def written_by_tensorflow() -> Path:
    """Return the directory of the files."""
    return written_once("tensorflow", lambda directory: run_tensorflow("write", str(directory)))


def loaded_by_tensorflow(name: str) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Return dtype, shape and bytes of each tensor of a written checkpoint, by key."""
    return _described((written_by_tensorflow() / f"{name}.json").read_text())


def read_by_tensorflow(prefix: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Return what TensorFlow reads from a checkpoint; this starts it, which takes seconds."""
    return _described(run_tensorflow("read", str(prefix)))


def restored_by_tensorflow(prefix: Path) -> dict[str, list[float]]:
    """Return what `tf.train.Checkpoint` restores into two layers, and into a variable by its whole name."""
    found: dict[str, list[float]] = json.loads(run_tensorflow("restore", str(prefix)))
    return found


def _described(text: str) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    found = json.loads(text)
    return {key: (dtype, tuple(shape), bytes.fromhex(data)) for key, (dtype, shape, data) in found.items()}


def run_tensorflow(*arguments: str) -> str:
    """Run this module as a program, and return what it prints."""
    program = [sys.executable, "-W", "ignore", "-m", __name__, *arguments]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(program, capture_output=True, text=True, timeout=240, check=False, env=environment)
    assert not done.returncode, done.stderr
    return done.stdout


def _as_json(prefix: str) -> str:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(prefix)
    found = {}
    for key in reader.get_variable_to_shape_map():
        array = np.asarray(reader.get_tensor(key))
        if key == "_CHECKPOINTABLE_OBJECT_GRAPH":
            continue
        if array.dtype.name in _NARROW:
            found[key] = (array.dtype.name, array.shape, array.astype(np.int8).tobytes().hex())
        elif array.dtype != object:
            found[key] = (array.dtype.name, array.shape, array.tobytes().hex())
        else:
            strings = json.dumps([string.hex() for string in array.reshape(-1).tolist()])
            found[key] = ("string", array.shape, strings.encode().hex())
    return json.dumps(found)


def _slice(shape: tuple[int, ...], start: int, stop: int) -> str:
    return " ".join(map(str, shape)) + f" {start},{stop - start}" + ":-" * (len(shape) - 1)


class _Writer:
    def __init__(self, directory: Path) -> None:
        import tensorflow as tf

        self.tf = tf
        self.directory = directory

    def save(self, name: str, **tensors: Any) -> None:
        """Save tensors by name, as `tf.compat.v1.train.Saver` does."""
        names = list(tensors)
        self.tf.raw_ops.SaveV2(
            prefix=str(self.directory / name),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[self.tf.constant(tensor) for tensor in tensors.values()],
        )
        self.note(name)

    def note(self, name: str) -> None:
        (self.directory / f"{name}.json").write_text(_as_json(str(self.directory / name)))

    def contracts(self) -> None:
        tf = self.tf
        self.save("contract", **ARRAYS)
        tf.train.Checkpoint(**{name: tf.Variable(array) for name, array in ARRAYS.items()}).write(
            str(self.directory / "objects")
        )
        self.note("objects")
        module = tf.Module()
        for name, array in ARRAYS.items():
            setattr(module, name, tf.Variable(array))
        tf.saved_model.save(module, str(self.directory / "contract-program"))
        parts = [(name, start, stop) for name, array in ARRAYS.items() for start, stop in ((0, 1), (1, len(array)))]
        tf.raw_ops.SaveV2(
            prefix=str(self.directory / "sliced"),
            tensor_names=[name for name, _, _ in parts],
            shape_and_slices=[_slice(ARRAYS[name].shape, start, stop) for name, start, stop in parts],
            tensors=[tf.constant(ARRAYS[name][start:stop]) for name, start, stop in parts],
        )
        halves = list(ARRAYS)[:2], list(ARRAYS)[2:]
        for place, half in enumerate(halves):
            self.save(f"half{place}", **{name: ARRAYS[name] for name in half})
        tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=[str(self.directory / f"half{place}") for place in range(2)],
            destination_prefix=str(self.directory / "sharded"),
        )
        self.note("sharded")

    def dtypes(self) -> None:
        tf = self.tf
        variables = {}
        numbers = np.arange(6).reshape(2, 3)
        for name in DTYPES:
            dtype = tf.as_dtype(name)
            if name.startswith("q"):
                variables[name] = tf.Variable(tf.bitcast(tf.constant(numbers.astype(name[1:])), dtype))
            else:
                array = numbers % 2 if name in {"int2", "uint2", "bool"} else numbers
                array = array * (1 + 2j) if name.startswith("complex") else array
                variables[name] = tf.Variable(tf.constant(array.astype(dtype.as_numpy_dtype)))
        variables["int4_negative"] = tf.Variable(
            tf.constant((numbers - 4).astype(tf.as_dtype("int4").as_numpy_dtype))
        )
        variables["empty"] = tf.Variable(np.zeros((0, 3), np.float32))
        variables["scalar"] = tf.Variable(np.float64(1.5))
        variables["text"] = tf.Variable(tf.constant([[b"ab", b""], [b"\xff\x00", "\u00e9".encode() * 100]]))
        variables["no_text"] = tf.Variable(tf.constant([], tf.string))
        tf.train.Checkpoint(**variables).write(str(self.directory / "dtypes"))
        self.note("dtypes")

    def training(self) -> None:
        """A Keras model and its optimizer, with a counter, kept by a manager; and the same as SavedModels."""
        import keras

        tf = self.tf
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, name="d1"), keras.layers.Dense(2)])
        model.compile("adam", "mse")
        model.fit(np.ones((4, 4)), np.ones((4, 2)), verbose=0)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer, step=tf.Variable(3, dtype=tf.int64))
        manager = tf.train.CheckpointManager(checkpoint, str(self.directory / "managed"), max_to_keep=3)
        manager.save()
        manager.save()
        model.export(str(self.directory / "exported"), verbose=False)

        module = tf.Module()
        module.w = tf.Variable(np.arange(6, dtype=np.float32).reshape(2, 3))
        module.table = tf.lookup.StaticVocabularyTable(
            tf.lookup.TextFileInitializer(
                self._vocabulary(),
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            1,
        )
        module.call = tf.function(lambda x: tf.matmul(x, module.w), input_signature=[tf.TensorSpec((None, 2))])
        tf.saved_model.save(module, str(self.directory / "module"))

    def _vocabulary(self) -> str:
        path = self.directory / "vocabulary.txt"
        path.write_text("a\nb\n")
        return str(path)

    def programs(self) -> None:
        """SavedModels whose programs read and write files, and run Python."""
        tf = self.tf

        def python(x: Any) -> Any:
            return x

        programs = {
            "reads": lambda: tf.io.read_file("/etc/passwd"),
            "writes": lambda: (tf.io.write_file("/tmp/never", "x"), tf.constant(0))[1],
            "lists": lambda: tf.io.matching_files("/etc/*"),
            "python": lambda: tf.py_function(python, [tf.constant(1)], tf.int32),
            "prints": lambda: (tf.print("hello"), tf.constant(0))[1],
        }
        for name, program in programs.items():
            module = tf.Module()
            module.call = tf.function(program, input_signature=[])
            tf.saved_model.save(module, str(self.directory / name))
        for name, default in {"usual": None, "text": "/x/ckpt", "tensor": tf.constant("/x/ckpt")}.items():
            module = tf.Module()
            module.restore = self.restoring(default)
            tf.saved_model.save(module, str(self.directory / f"default-{name}"))

    def restoring(self, default: Any) -> Any:
        """Return a function that restores a variable from a path, which has a default."""
        tf = self.tf

        def restore(path: Any = default, strict: bool = True) -> Any:
            return tf.raw_ops.RestoreV2(prefix=path, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32])[
                0
            ]

        signature = [tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.bool)]
        return tf.function(restore, input_signature=signature)

    def graphs(self) -> None:
        """The sessions of `tf.compat.v1`: partitioned variables, shards, both formats, a graph alone."""
        tf = self.tf.compat.v1
        graph = tf.Graph()
        with graph.as_default(), tf.Session(graph=graph) as session:
            tf.get_variable(
                "scope/w",
                shape=(10, 4),
                dtype=tf.float32,
                partitioner=tf.fixed_size_partitioner(3),
                initializer=tf.random_normal_initializer(seed=1),
                use_resource=False,
            )
            tf.get_variable("b", shape=(5,), initializer=tf.ones_initializer(), use_resource=False)
            session.run(tf.global_variables_initializer())
            for name, options in (("part", {}), ("shards", {"sharded": True}), ("first", {"write_version": 1})):
                (self.directory / f"tf1-{name}").mkdir()
                tf.train.Saver(**options).save(session, str(self.directory / f"tf1-{name}" / "model"), global_step=7)
            (self.directory / "frozen.pb").write_bytes(graph.as_graph_def().SerializeToString())
        for name in ("part", "shards"):
            self.note(f"tf1-{name}/model-7")


def _write_all(directory: Path) -> None:
    writer = _Writer(directory)
    writer.contracts()
    writer.dtypes()
    writer.training()
    writer.programs()
    writer.graphs()


def _restored(prefix: str) -> str:
    import tensorflow as tf

    layers = [tf.Module(), tf.Module()]
    layers[0].kernel, layers[0].bias = tf.Variable(tf.zeros((2, 3))), tf.Variable(tf.zeros(3))
    layers[1].kernel = tf.Variable(tf.zeros((3, 1)))
    tf.train.Checkpoint(layers=layers).read(prefix).assert_consumed()
    alone = tf.Variable(tf.zeros(3))
    tf.train.Checkpoint(**{"layers.0.bias": alone}).read(prefix).assert_existing_objects_matched()
    variables = {"kernel": layers[0].kernel, "bias": layers[0].bias, "other": layers[1].kernel, "alone": alone}
    return json.dumps({name: variable.numpy().ravel().tolist() for name, variable in variables.items()})


if __name__ == "__main__":
    verb, target = sys.argv[1:]
    if verb == "write":
        _write_all(Path(target))
    else:
        print(_restored(target) if verb == "restore" else _as_json(target))
