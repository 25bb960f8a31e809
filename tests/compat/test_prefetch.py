"""`safe_open.prefetch`: tensors are read in the background, and each is handed out once."""

import gc
import io
import threading
import time

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.compat import _safe_open_handle
from tests.support import forks

TENSORS = {"x": torch.arange(12.0).reshape(3, 4), "s": torch.tensor(3.0), "e": torch.zeros(0, 3)}
LIMIT_S = 30


@pytest.fixture
def path(tmp_path):
    tensorkeep.torch.save_file(TENSORS, tmp_path / "m")
    return tmp_path / "m"


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("threads", [1, 8, 10**9])
def test_every_tensor_arrives_once(ours, path, backend, threads):
    with ours.base.safe_open(path, "pt", backend=backend) as file, file.prefetch(threads=threads) as loader:
        assert loader.names() == file.offset_keys()
        assert len(loader) == 3
        arrived = list(loader)
        assert list(loader) == []
    assert sorted(name for name, _ in arrived) == ["e", "s", "x"]
    assert all(torch.equal(tensor, TENSORS[name]) for name, tensor in arrived)


@pytest.mark.parametrize(
    "rows", [None, slice(1, 3), slice(-1, None), slice(2, 1), slice(3, None), slice(np.int64(1), None, 1)]
)
def test_rows(ours, path, rows):
    taken = ours.base.safe_open(path, "pt").prefetch({"x": rows}).take("x")
    assert torch.equal(taken, TENSORS["x"] if rows is None else TENSORS["x"][rows])


def test_tensors_outlive_file_and_loader_and_share_nothing(ours, path):
    with ours.base.safe_open(path, "pt") as file:
        first, second = file.prefetch(), file.prefetch()
        mapped = file.get_tensor("x")
    tensors = first.take("x"), second.take("x")
    first.close()
    tensors[0].fill_(7)
    assert torch.equal(tensors[1], TENSORS["x"])
    assert torch.equal(mapped, TENSORS["x"])


def test_what_cannot_be_taken(ours, path):
    loader = ours.base.safe_open(path, "pt").prefetch({"x": None, "s": None})
    with pytest.raises(tensorkeep.SafetensorError, match="tensor e is not in the prefetch plan"):
        loader.take("e")
    loader.take("x")
    with pytest.raises(tensorkeep.SafetensorError, match="tensor already delivered"):
        loader.take("x")
    assert [name for name, _ in loader] == ["s"]
    loader.close()
    with pytest.raises(tensorkeep.SafetensorError, match="prefetch loader closed"):
        loader.take("s")


PLANS = {
    "nothing": ({}, "prefetch plan selects no tensors"),
    "unknown": ({"zz": None}, "File does not contain tensor zz"),
    "key": ({3: None}, "prefetch plan keys must be tensor names"),
    "value": ({"x": 3}, "prefetch plan values must be None or a slice, got <class 'int'> for x"),
    "0-d": ({"s": slice(None)}, "cannot slice rows of the 0-d tensor s"),
    "step": ({"x": slice(0, 2, 2)}, "prefetch plan slices must have step 1, got 2 for x"),
    "no step": ({"x": slice(0, 2, 0)}, "invalid prefetch plan slice for x: ValueError: slice step cannot be zero"),
    "stop": ({"x": slice(0, 99)}, "prefetch plan slice stop 99 for x is out of range for 3 rows"),
    "start": ({"x": slice(-4, None)}, "prefetch plan slice start -4 for x is out of range for 3 rows"),
    "bounds": ({"x": slice("a")}, "prefetch plan slice bounds for x must be integers or None"),
}


@pytest.mark.parametrize(("plan", "text"), PLANS.values(), ids=PLANS)
def test_plans_that_do_not_fit(either, path, plan, text):
    file = either.base.safe_open(path, "pt")
    if not hasattr(file, "prefetch"):
        pytest.skip("safetensors has it since 0.9")
    with pytest.raises((tensorkeep.SafetensorError, either.base.SafetensorError)) as caught:
        file.prefetch(plan, device="cuda:0")
    assert str(caught.value) == text


def test_other_arguments_that_do_not_fit(ours, path):
    file = ours.base.safe_open(path, "pt")
    for arguments in ({"plan": ["x"]}, {"threads": 1.5}):
        with pytest.raises(TypeError):
            file.prefetch(**arguments)
    with pytest.raises(OverflowError):
        file.prefetch(threads=-1)
    with pytest.raises(RuntimeError, match="torch has no device"):
        file.prefetch(device="cuda:99")
    with pytest.raises(tensorkeep.SafetensorError, match='only compatible with framework="pt"'):
        ours.base.safe_open(path, "np").prefetch()
    with file, pytest.raises(tensorkeep.SafetensorError, match="device bad is invalid"):
        file.prefetch(device="bad")
    with pytest.raises(tensorkeep.SafetensorError, match="File is closed"):
        file.prefetch()


class Gate(io.BytesIO):
    """A file whose tensors arrive only when the gate is open."""

    def __init__(self, data):
        super().__init__(data)
        self.opened = threading.Event()
        self.opened.set()

    def read(self, n=-1):
        assert self.opened.wait(LIMIT_S)
        return super().read(n)


@pytest.fixture
def gate():
    gate = Gate(tensorkeep.torch.save({str(number): torch.full((9,), number) for number in range(20)}))
    yield gate
    gate.opened.set()


def readers():
    return [thread for thread in threading.enumerate() if thread.name == "tensorkeep-prefetch"]


def wait_until(condition):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_take_waits_for_its_tensor(gate):
    file = _safe_open_handle(gate, "pt")
    gate.opened.clear()
    loader = file.prefetch(threads=1)
    opener = threading.Timer(0.05, gate.opened.set)
    opener.start()
    assert loader.take("19").tolist() == [19] * 9
    assert len(list(loader)) == 19
    opener.join()


@pytest.mark.parametrize("waits", [lambda loader: loader.take("0"), list])
def test_closing_ends_waiting(gate, waits):
    file = _safe_open_handle(gate, "pt")
    gate.opened.clear()
    loader = file.prefetch(threads=2)
    closer = threading.Timer(0.05, loader.close)
    closer.start()
    with pytest.raises(tensorkeep.SafetensorError, match="prefetch loader closed"):
        waits(loader)
    gate.opened.set()
    closer.join()
    assert not readers()


def test_a_loader_that_is_dropped_stops(gate):
    file = _safe_open_handle(gate, "pt")
    gate.opened.clear()
    loader = file.prefetch(threads=2)
    assert len(readers()) == 2
    del loader
    gc.collect()
    gate.opened.set()
    wait_until(lambda: not readers())
    assert gate.tell() < len(gate.getvalue())


def test_a_tensor_that_cannot_be_read_is_an_error_where_it_is_taken(ours, path):
    file = ours.base.safe_open(path, "pt", backend="pread")
    path.write_bytes(path.read_bytes()[:-1])
    loader = file.prefetch()
    assert loader.take("s") == 3
    with pytest.raises(tensorkeep.errors.SourceChangedError):
        loader.take("x")


def test_a_dtype_that_torch_lacks_is_refused_at_once(ours, tmp_path):
    header = b'{"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}}'
    (tmp_path / "m").write_bytes(len(header).to_bytes(8, "little") + header + bytes(3))
    with pytest.raises(tensorkeep.errors.DtypeError, match="prefetch cannot hand out dtype F6_E2M3"):
        ours.base.safe_open(tmp_path / "m", "pt").prefetch()


def test_a_process_ends_although_a_loader_has_much_to_do(path):
    code = (
        "import sys, tensorkeep; from tensorkeep.torch import safe_open\n"
        "loader = safe_open(sys.argv[1], 'pt').prefetch(); print('done')"
    )
    assert forks.run(code, path) == (0, "done\n", "")


def test_meta(either, path):
    file = either.base.safe_open(path, "pt")
    if not hasattr(file, "get_tensor_meta"):
        pytest.skip("safetensors has it since 0.9")
    metas = {name: file.get_tensor_meta(name) for name in TENSORS}
    assert {name: (meta.dtype, meta.shape) for name, meta in metas.items()} == {
        name: ("F32", list(tensor.shape)) for name, tensor in TENSORS.items()
    }
    assert sorted(meta.data_offsets for meta in metas.values()) == [(0, 0), (0, 4), (4, 52)]
