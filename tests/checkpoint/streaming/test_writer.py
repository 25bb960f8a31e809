"""A checkpoint that is written tensor by tensor: complete in its place at the end, or nothing has changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.arrays import StreamedTensor
from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import (
    BusyError,
    DtypeError,
    HeaderError,
    IntegrityError,
    LimitError,
    RefusedError,
    TensorkeepError,
    TensorNotFoundError,
    UnsupportedError,
)
from tests.support.checkpoint.numbered_saves import contents

TENSORS = {
    "embedding": np.arange(600, dtype=np.float32).reshape(20, 30),
    "half": np.ones((7, 3), ml_dtypes.bfloat16),
    "none": np.zeros((0, 4), np.int8),
    "scalar": np.array(5, np.int64),
}
PLAN = {name: (array.dtype, array.shape) for name, array in TENSORS.items()}


def write(
    directory: Path, tensors: Mapping[str, Any] = TENSORS, *, then: Callable[[], object] = lambda: None
) -> None:
    with tensorkeep.writing(directory, PLAN) as writer:
        for name, tensor in tensors.items():
            writer[name] = tensor
        assert writer.missing == [name for name in PLAN if name not in tensors]
        then()


def test_in_any_order_it_is_what_one_save_writes(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(TENSORS, tmp_path / "once", max_shard_size=1500, metadata={"a": "b"}, sha256=True)

    with tensorkeep.writing(tmp_path / "each", PLAN, max_shard_size=1500, metadata={"a": "b"}, sha256=True) as writer:
        for name in reversed(TENSORS):
            writer[name] = TENSORS[name]
            assert not any((tmp_path / "each").glob("*.safetensors"))

    assert contents(tmp_path / "each") == contents(tmp_path / "once")
    assert tensorkeep.verify(tmp_path / "each")


def test_anything_with_a_dtype_and_shape_is_a_plan(tmp_path: Path) -> None:
    tensorkeep.save(TENSORS, tmp_path / "like.safetensors", metadata={"of": "a model"})
    with (
        tensorkeep.open(tmp_path / "like.safetensors") as like,
        tensorkeep.writing(tmp_path / "copy", like) as writer,
    ):
        for name, lazy in like.items():
            writer[name] = lazy
    assert tensorkeep.diff(tmp_path / "like.safetensors", tmp_path / "copy").is_equal
    assert tensorkeep.open(tmp_path / "copy").metadata["of"] == "a model"

    meta = {"w": torch.empty(4, 5, dtype=torch.float16, device="meta")}
    with tensorkeep.writing(tmp_path / "torch", meta) as writer:
        writer["w"] = torch.ones(5, 4, dtype=torch.float16).T
    assert (tensorkeep.load(tmp_path / "torch")["w"] == 1).all()


def test_threads_write_different_tensors(tmp_path: Path) -> None:
    tensors = {f"w{place}": np.full((300, 1000), place, np.float32) for place in range(12)}
    plan = {name: ("f32", array.shape) for name, array in tensors.items()}

    with tensorkeep.writing(tmp_path / "out", plan, max_shard_size="3MB") as writer:
        threads = [threading.Thread(target=writer.__setitem__, args=item) for item in tensors.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert tensorkeep.verify(tmp_path / "out")
    for name, array in tensorkeep.load(tmp_path / "out").items():
        np.testing.assert_array_equal(array, tensors[name])


@pytest.fixture
def old(tmp_path: Path) -> Path:
    tensorkeep.save_checkpoint({"old": np.ones(3)}, tmp_path / "run")
    return tmp_path / "run"


def test_a_missing_tensor_saves_nothing(old: Path) -> None:
    before = contents(old)

    with pytest.raises(RefusedError, match=r"2 tensors of the plan were not written .*`half`, `none`"):
        write(old, {name: TENSORS[name] for name in ("scalar", "embedding")})

    assert contents(old) == before


def test_a_block_that_raises_saves_nothing(old: Path) -> None:
    before = contents(old)

    with pytest.raises(ZeroDivisionError):
        write(old, then=lambda: 1 // 0)

    assert contents(old) == before
    assert sorted(path.name for path in old.iterdir()) == ["model.safetensors"]


def test_what_is_not_planned_is_refused(tmp_path: Path) -> None:
    with tensorkeep.writing(tmp_path / "out", PLAN) as writer:
        with pytest.raises(TensorNotFoundError, match="no tensor `other`"):
            writer["other"] = np.ones(2)
        with pytest.raises(RefusedError, match=r"expected F32 \[20, 30\], found F64 \[20, 30\]"):
            writer["embedding"] = TENSORS["embedding"].astype(float)
        with pytest.raises(UnsupportedError, match="not a tensor"):
            writer["embedding"] = [1, 2]
        for name, array in TENSORS.items():
            writer[name] = array
        with pytest.raises(RefusedError, match="`half` was written before"):
            writer["half"] = TENSORS["half"]

    with pytest.raises(UnsupportedError, match="block of `with`"):
        writer["half"] = TENSORS["half"]
    assert tensorkeep.verify(tmp_path / "out")


def test_a_tensor_that_fails_can_be_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tensorkeep.writing(tmp_path / "out", {"a": ("uint8", (3,)), "b": ("uint8", (3,))}) as writer:
        writer["b"] = np.full(3, 7, np.uint8)
        too_many = StreamedTensor(BY_NAME["U8"], (3,), 3, lambda: iter([b"12", b"345"]))
        monkeypatch.setattr("tensorkeep.checkpoint.streaming._writer.any_tensor_to_write", lambda *_: too_many)
        with pytest.raises(IntegrityError, match="expected 3 bytes, found 5"):
            writer["a"] = None
        monkeypatch.undo()
        writer["a"] = np.arange(3, dtype=np.uint8)

    loaded = tensorkeep.load(tmp_path / "out")
    assert (loaded["a"].tolist(), loaded["b"].tolist()) == ([0, 1, 2], [7, 7, 7])


def test_a_writer_is_for_one_block(old: Path) -> None:
    writer = tensorkeep.writing(old, PLAN)
    with pytest.raises(RefusedError, match="4 tensors"), writer:
        pass

    with pytest.raises(UnsupportedError, match="one block"):
        writer.__enter__()
    assert tensorkeep.load(old).keys() == {"old"}


def test_the_state_of_a_checkpoint_is_kept(tmp_path: Path) -> None:
    state = {"model": {"w": torch.nn.Parameter(torch.ones(3))}, "step": 7, "rates": (0.1, 0.2)}
    tensorkeep.save_checkpoint(state, tmp_path / "run")

    with tensorkeep.open(tmp_path / "run") as before, tensorkeep.writing(tmp_path / "run", before) as writer:
        for name, lazy in before.items():
            writer[name] = lazy

    loaded = tensorkeep.load(tmp_path / "run")
    assert (loaded["step"], loaded["rates"]) == (7, (0.1, 0.2))
    assert isinstance(loaded["model"]["w"], torch.nn.Parameter)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_ends_the_block_saves_nothing(old: Path) -> None:
    def end_in_a_child() -> None:
        pid = os.fork()
        if not pid:
            try:
                writers[0].__exit__(None, None, None)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)

    writers: list[Any] = []
    with tensorkeep.writing(old, PLAN) as writer:
        writers.append(writer)
        for name, array in TENSORS.items():
            writer[name] = array
        end_in_a_child()
        assert tensorkeep.load(old).keys() == {"old"}

    assert tensorkeep.load(old).keys() == TENSORS.keys()


BAD_NAMES = ["__metadata__", "\ud800", "n" * 20_000, 5, None, b"a", ("a",), True]


@pytest.mark.parametrize("name", BAD_NAMES, ids=[ascii(name)[:20] for name in BAD_NAMES])
def test_names_that_no_file_can_have(name: Any, old: Path) -> None:
    with pytest.raises(HeaderError, match="cannot be the name of a tensor"):
        tensorkeep.writing(old, {"a": ("f32", (1,)), name: ("f32", (1,))})
    with pytest.raises(HeaderError, match="cannot be the name of a tensor"), tensorkeep.writing(old) as writer:
        writer[name] = np.ones(1)
    assert tensorkeep.load(old).keys() == {"old"}


def test_plans_as_json_has_them(tmp_path: Path) -> None:
    with tensorkeep.writing(tmp_path / "out", {"a": ["f32", [3]]}) as writer:
        writer["a"] = np.ones(3, np.float32)
    assert tensorkeep.load(tmp_path / "out")["a"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("planned", [None, ("f32", (1,), 2), ("f32", 3), "f32"])
def test_a_plan_that_says_nothing_names_the_tensor(planned: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="tensor 'a' is planned as a pair"):
        tensorkeep.writing(tmp_path / "out", {"a": planned})


def test_a_file_that_no_disk_can_hold(old: Path) -> None:
    with pytest.raises(LimitError, match="too large"), tensorkeep.writing(old, {"a": ("f32", (2**61,))}):
        pass
    with pytest.raises(LimitError, match="too large"):
        tensorkeep.save_checkpoint(tensorkeep.open(old).map(lambda x: x, shape=(2**70,)), old)
    assert tensorkeep.load(old).keys() == {"old"}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no list of descriptors")
def test_few_files_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorkeep.checkpoint.saving._reserved_files._MAX_OPEN", 5)
    plan = {f"w{place}": ("f32", (10,)) for place in range(40)}
    before = len(os.listdir("/proc/self/fd"))
    most = 0
    with tensorkeep.writing(tmp_path / "out", plan, max_shard_size=40) as writer:
        for name in [*list(plan)[::2], *list(plan)[1::2]]:
            writer[name] = np.full(10, int(name[1:]), np.float32)
            most = max(most, len(os.listdir("/proc/self/fd")))
    assert most <= before + 5 + 3
    assert tensorkeep.verify(tmp_path / "out")
    assert tensorkeep.load(tmp_path / "out")["w7"].tolist() == [7.0] * 10


@pytest.mark.parametrize("plan", [PLAN, None], ids=["planned", "as they come"])
def test_a_block_that_ends_while_threads_write(old: Path, plan: Any) -> None:
    is_writing, may_end = threading.Event(), threading.Event()
    errors: list[TensorkeepError] = []

    class Slow:
        shape, dtype = (20, 30), "float32"

        def __array__(self, *_: object, **__: object) -> Any:
            is_writing.set()
            may_end.wait(10)
            return TENSORS["embedding"]

    view = tensorkeep.open(tensorkeep.numpy.save({"embedding": TENSORS["embedding"]})).map(
        lambda _: np.asarray(Slow()), scope="tensor"
    )

    def write_slowly(writer: Any) -> None:
        try:
            writer["embedding"] = view["embedding"]
        except TensorkeepError as error:
            errors.append(error)

    def end_too_early() -> None:
        with tensorkeep.writing(old, plan) as writer:
            threads.append(threading.Thread(target=write_slowly, args=(writer,)))
            threads[0].start()
            is_writing.wait(10)

    threads: list[threading.Thread] = []
    with pytest.raises(RefusedError, match=r"still writing 1 tensor .*`embedding`"):
        end_too_early()
    may_end.set()
    threads[0].join()
    assert tensorkeep.load(old).keys() == {"old"}
    assert sorted(path.name for path in old.iterdir()) == ["model.safetensors"]


def test_plans_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(DtypeError, match=r"'a' is planned with a dtype that does not exist.*'f33'"):
        tensorkeep.writing(tmp_path / "out", {"a": ("f33", (1,))})
    with pytest.raises(DtypeError, match='one dtype in NumPy and another elsewhere: write "float32"'):
        tensorkeep.writing(tmp_path / "out", {"a": ("f4", (1,))})
    with pytest.raises(ValueError, match=r"negative extents: \[-1, 2\], of tensor 'a'"):
        tensorkeep.writing(tmp_path / "out", {"a": ("f32", (-1, 2))})
    with pytest.raises(UnsupportedError, match="one by one to a directory of this machine"):
        tensorkeep.writing("memory://out/", PLAN)


@pytest.mark.parametrize("plan", [None, {"w": ("f32", (1000,))}])
@pytest.mark.parametrize("verify", [False, True])
def test_damage_gets_no_new_digest(plan: Any, verify: bool, old: Path, tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(1000, np.float32)}, tmp_path / "damaged.safetensors")
    content = bytearray((tmp_path / "damaged.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "damaged.safetensors").write_bytes(content)
    before = contents(old)

    with (
        tensorkeep.open(tmp_path / "damaged.safetensors", verify=verify) as file,
        pytest.raises(IntegrityError, match="`w`"),
        tensorkeep.writing(old, plan) as writer,
    ):
        writer["w"] = file["w"]

    assert contents(old) == before


def test_a_patch_of_a_damaged_checkpoint_is_not_written(tmp_path: Path) -> None:
    start = np.arange(5000, dtype=np.float32)
    tensorkeep.save_checkpoint({"w": start}, tmp_path / "old")
    tensorkeep.save_checkpoint({"w": start + (start == 7)}, tmp_path / "new")
    tensorkeep.patches.make(tmp_path / "old", tmp_path / "new", tmp_path / "p.safetensors")
    shard = tmp_path / "old" / "model.safetensors"
    shard.write_bytes(shard.read_bytes()[:-5] + b"\xff" * 5)

    with tensorkeep.open(tmp_path / "old") as base, tensorkeep.open(tmp_path / "p.safetensors") as patch:
        view = tensorkeep.patches.view(base, patch)
        for write in (
            lambda: tensorkeep.reshard(view, tmp_path / "a"),
            lambda: tensorkeep.reshard_for_ranks(view, tmp_path / "b", 2, plan={"w": "rowwise"}),
            lambda: tensorkeep.export(view, tmp_path / "c.npz"),
        ):
            with pytest.raises(IntegrityError, match="`w`"):
                write()
        with pytest.raises(IntegrityError, match="`w`"), tensorkeep.writing(tmp_path / "d") as writer:
            writer["w"] = view["w"]

    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old", "p.safetensors"]


def test_two_writers_of_one_directory(old: Path) -> None:
    def write_too() -> None:
        with pytest.raises(BusyError):
            write(old)

    write(old, then=write_too)

    assert tensorkeep.load(old).keys() == TENSORS.keys()


@pytest.mark.parametrize("max_shard_size", [10**6, 1500], ids=["one file", "shards"])
def test_without_a_plan_it_is_what_one_save_writes(tmp_path: Path, max_shard_size: int) -> None:
    options: dict[str, Any] = {"max_shard_size": max_shard_size, "metadata": {"a": "b"}, "sha256": True}
    tensorkeep.save_checkpoint(TENSORS, tmp_path / "once", **options)

    with tensorkeep.writing(tmp_path / "each", **options) as writer:
        for name, array in TENSORS.items():
            writer[name] = array
            assert not any((tmp_path / "each").glob("*.safetensors"))
        assert writer.missing == []

    assert contents(tmp_path / "each") == contents(tmp_path / "once")
    assert tensorkeep.verify(tmp_path / "each")


def test_without_a_plan_tensors_keep_their_library(tmp_path: Path) -> None:
    with tensorkeep.writing(tmp_path / "out") as writer:
        writer["a"] = torch.ones(3, dtype=torch.bfloat16)
        with pytest.raises(RefusedError, match="written before"):
            writer["a"] = torch.ones(4)
        with pytest.raises(UnsupportedError, match="not a tensor"):
            writer["b"] = [1, 2]
    assert torch.equal(tensorkeep.load(tmp_path / "out")["a"], torch.ones(3, dtype=torch.bfloat16))


def test_nothing_given_is_an_empty_checkpoint(tmp_path: Path) -> None:
    with tensorkeep.writing(tmp_path / "out"):
        pass
    assert tensorkeep.load(tmp_path / "out") == {}


def test_without_a_plan_a_block_that_raises_saves_nothing(old: Path) -> None:
    def fail() -> None:
        with tensorkeep.writing(old) as writer:
            writer["a"] = np.ones(1000)
            raise ZeroDivisionError

    before = contents(old)
    with pytest.raises(ZeroDivisionError):
        fail()
    assert contents(old) == before
    assert sorted(path.name for path in old.iterdir()) == ["model.safetensors"]


def test_without_a_plan_a_failure_takes_no_place(tmp_path: Path) -> None:
    failing = tensorkeep.open(tensorkeep.numpy.save({"a": np.ones(3)})).map(lambda _: 1 // 0, scope="tensor")
    with tensorkeep.writing(tmp_path / "out") as writer:
        with pytest.raises(ZeroDivisionError):
            writer["a"] = failing["a"]
        writer["b"] = np.ones(2)
        writer["a"] = np.zeros(4)
    loaded = tensorkeep.load(tmp_path / "out")
    assert {name: array.tolist() for name, array in loaded.items()} == {"b": [1, 1], "a": [0, 0, 0, 0]}


KILLED_PLAN = '{"a": ("f32", (1000,)), "b": ("f32", (1000,))}'
KILLED = """
import os, signal, sys
import numpy as np
import tensorkeep

with tensorkeep.writing(sys.argv[1], PLAN) as writer:
    writer["a"] = np.ones(1000, np.float32)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("plan", [KILLED_PLAN, "None"], ids=["planned", "as they come"])
def test_killed_while_writing_the_old_one_stays(old: Path, plan: str) -> None:
    program = KILLED.replace("PLAN", plan)
    killed = subprocess.run([sys.executable, "-c", program, old], timeout=60, check=False)

    assert killed.returncode == -signal.SIGKILL
    assert tensorkeep.load(old).keys() == {"old"}
    write(old)
    assert sorted(path.name for path in old.iterdir()) == ["model.safetensors"]
