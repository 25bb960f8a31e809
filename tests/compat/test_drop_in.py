"""The faces give what the reference gives: names, signatures, bytes and tensors."""

import gzip
import inspect
import io
import json
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
import safetensors.torch
import torch

import tensorkeep
from tensorkeep.compat import _safe_open_handle

TORCH_DTYPES = sorted(safetensors.torch._SIZE, key=str)


def random_bytes(n, seed=0):
    """Bytes of 0 and 1, so that they make booleans too."""
    return torch.tensor(np.random.default_rng(seed).integers(0, 2, n), dtype=torch.uint8)


def every_dtype():
    tensors = {}
    for dtype in TORCH_DTYPES:
        for shape in ((3, 4), (), (0, 2), (2, 2, 2)):
            if dtype == torch.float4_e2m1fn_x2 and not shape:
                continue  # half a byte in the format's terms
            n = int(np.prod(shape))
            flat = random_bytes(max(1, n) * safetensors.torch._SIZE[dtype]).view(dtype)[:n]
            tensors[f"{dtype}.{shape}"] = flat.reshape(shape)
    return tensors


@pytest.mark.parametrize("module", ["torch", "numpy"])
def test_every_name_is_there(ours, reference, module):
    theirs, mine = getattr(reference, module), getattr(ours, module)
    imported = {"Any", "Dict", "List", "Optional", "Set", "Tuple", "Union", "defaultdict", "sys", "os"}
    names = {name for name in vars(theirs) if not name.startswith("__")} - imported
    assert names <= set(vars(mine))
    dtypes = [name for name in names if name.startswith("_float")]
    assert [vars(mine)[name] for name in dtypes] == [vars(theirs)[name] for name in dtypes]


@pytest.mark.parametrize("module", ["torch", "numpy"])
def test_signatures_are_compatible(ours, reference, module):
    theirs, mine = getattr(reference, module), getattr(ours, module)
    for name in ("load", "load_file", "load_model", "save", "save_file", "save_model"):
        if not hasattr(theirs, name):
            continue
        expected = inspect.signature(getattr(theirs, name)).parameters
        found = inspect.signature(getattr(mine, name)).parameters
        assert list(found)[: len(expected)] == list(expected), name
        for parameter, value in expected.items():
            assert found[parameter].kind == value.kind, (name, parameter)
            if parameter != "backend":  # ours chooses by file system
                assert found[parameter].default == value.default, (name, parameter)


def test_the_bytes_are_the_same(ours, reference, tmp_path):
    tensors = every_dtype()
    assert ours.torch.save(tensors, {"format": "pt"}) == reference.torch.save(tensors, {"format": "pt"})
    for m in (ours, reference):
        m.torch.save_file(tensors, tmp_path / m.base.__name__, metadata={"format": "pt"})
    assert (tmp_path / "tensorkeep").read_bytes() == (tmp_path / "safetensors").read_bytes()
    arrays = {name: np.arange(6).reshape(2, 3).astype(name) for name in ("bool", "i1", "u2", "f2", "f4", "c8", "u8")}
    assert ours.numpy.save(arrays) == reference.numpy.save(arrays)


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_the_tensors_are_the_same(ours, reference, tmp_path, backend):
    path = tmp_path / "model.safetensors"
    reference.torch.save_file(every_dtype(), path)
    expected = reference.torch.load_file(path)
    for found in (ours.torch.load_file(path, backend=backend), ours.torch.load(path.read_bytes())):
        assert list(found) == list(expected)
        for name, tensor in found.items():
            assert tensor.dtype == expected[name].dtype
            assert tensor.shape == expected[name].shape
            assert ours.torch.save({"x": tensor}) == reference.torch.save({"x": expected[name].clone()})


def test_safe_open_gives_what_the_reference_gives(ours, reference, tmp_path):
    path = tmp_path / "model.safetensors"
    tensors = {"b": torch.arange(24.0).reshape(2, 3, 4), "a": torch.arange(5), "s": torch.tensor(1.5)}
    reference.torch.save_file(tensors, path, metadata={"k": "v"})
    for framework in ("pt", "np"):
        with reference.base.safe_open(path, framework) as theirs, ours.base.safe_open(path, framework) as mine:
            assert mine.keys() == theirs.keys()
            assert mine.offset_keys() == theirs.offset_keys()
            assert mine.metadata() == theirs.metadata()
            assert list(mine.get_tensors()) == list(theirs.get_tensors())
            for name in tensors:
                assert np.array_equal(mine.get_tensor(name), theirs.get_tensor(name))
            expected, found = theirs.get_slice("b"), mine.get_slice("b")
            assert found.get_shape() == expected.get_shape()
            assert found.get_dtype() == expected.get_dtype()
            for index in (0, -1, slice(None), slice(1, 2), (0, slice(0, 3, 2)), (..., 1), (1, ..., slice(1, 3))):
                assert np.array_equal(found[index], expected[index])
                assert type(found[index]) is type(expected[index])


def test_no_metadata_is_none(ours, tmp_path):
    path = tmp_path / "model.safetensors"
    ours.torch.save_file({"a": torch.zeros(1)}, path)
    assert ours.base.safe_open(path, "pt").metadata() is None


def test_deserialize_and_serialize(ours, reference):
    data = reference.torch.save({"b": torch.arange(3), "a": torch.zeros(2)})
    assert [name for name, _ in ours.base.deserialize(data)] == ["b", "a"]
    assert dict(ours.base.deserialize(data)) == dict(reference.base.deserialize(data))
    array = np.arange(6, dtype="f4")
    specs = [
        {"x": m.base.TensorSpec(dtype="float32", shape=(2, 3), data_ptr=array.ctypes.data, data_len=24)}
        for m in (ours, reference)
    ]
    assert repr(specs[0]["x"]) == repr(specs[1]["x"])
    assert ours.base.serialize(specs[0], {"k": "v"}) == reference.base.serialize(specs[1], {"k": "v"})


def test_serialize_file(ours, reference, tmp_path):
    array = np.arange(6, dtype="f4")
    for m in (ours, reference):
        spec = m.base.TensorSpec(dtype="float32", shape=(2, 3), data_ptr=array.ctypes.data, data_len=24)
        m.base.serialize_file({"x": spec}, tmp_path / m.base.__name__)
    assert (tmp_path / "tensorkeep").read_bytes() == (tmp_path / "safetensors").read_bytes()


def test_fp4_by_torchs_packing_rule(ours, reference, tmp_path):
    packed = random_bytes(8).reshape(2, 4).view(torch.float4_e2m1fn_x2)
    assert ours.torch.save({"x": packed}) == reference.torch.save({"x": packed})
    path = tmp_path / "model.safetensors"
    ours.torch.save_file({"x": packed}, path)
    file = ours.base.safe_open(path, "pt")
    assert file.get_slice("x").get_shape() == [2, 8]
    for found in (file.get_tensor("x"), file.get_slice("x")[:], ours.torch.load(path.read_bytes())["x"]):
        assert found.dtype == torch.float4_e2m1fn_x2
        assert torch.equal(found.view(torch.uint8), packed.view(torch.uint8))
    assert torch.equal(file.get_slice("x")[:, 2:6].view(torch.uint8), packed.view(torch.uint8)[:, 1:3])
    with pytest.raises(tensorkeep.errors.DtypeError, match="pairs"):
        file.get_slice("x")[:, :3]


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(8, 4)
        self.head = torch.nn.Linear(4, 8, bias=False)
        self.head.weight = self.embed.weight


@pytest.mark.parametrize("writer", ["ours", "reference"])
@pytest.mark.parametrize("reader", ["ours", "reference"])
def test_tied_models_travel_between_the_two(request, tmp_path, writer, reader):
    writer, reader = request.getfixturevalue(writer), request.getfixturevalue(reader)
    model, fresh = Tied(), Tied()
    metadata = {"mine": "1"}
    writer.torch.save_model(model, tmp_path / "m", metadata=metadata)
    assert reader.torch.load_model(fresh, tmp_path / "m") == (set(), [])
    assert torch.equal(fresh.head.weight, model.embed.weight)
    assert fresh.head.weight is fresh.embed.weight


def test_save_model_leaves_the_callers_metadata_alone(ours, tmp_path):
    metadata = {"mine": "1"}
    ours.torch.save_model(Tied(), tmp_path / "m", metadata=metadata)
    assert metadata == {"mine": "1"}
    assert tensorkeep.open(tmp_path / "m").metadata == {"mine": "1", "head.weight": "embed.weight"}


def test_a_small_view_does_not_hide_a_later_overlap(ours, tmp_path):
    base = torch.arange(10.0)
    state = {"all": base, "head": base[:2], "tail": base[5:]}
    assert ours.torch._find_shared_tensors(state) == [{"all", "head", "tail"}]
    assert ours.torch._remove_duplicate_names(state) == {"all": ["head", "tail"]}
    assert ours.torch._find_shared_tensors({"a": base[:5], "b": base[5:]}) == [{"a"}, {"b"}]


WHOLE = torch.arange(12.0)
MATRIX = WHOLE.reshape(3, 4)
TIED = {
    "a view": ({"a": WHOLE, "b": WHOLE[:5]}, {}, {"a": ["b"]}),
    "equal": ({"c": WHOLE, "b": WHOLE, "a": WHOLE}, {}, {"a": ["b", "c"]}),
    "preferred": ({"a": WHOLE, "b": WHOLE}, {"preferred_names": ["b"]}, {"b": ["a"]}),
    "discarded": ({"a": WHOLE, "b": WHOLE}, {"discard_names": ["a"]}, {"b": ["a"]}),
    "overlap": ({"a": WHOLE[:6], "b": WHOLE[4:]}, {}, RuntimeError),
    "parts": ({"a": WHOLE[:5], "b": WHOLE[:5]}, {}, (RuntimeError, {"a": ["b"]})),
    "one part": ({"a": WHOLE[:5]}, {}, (RuntimeError, {})),
    "transposed": ({"a": MATRIX.t(), "b": MATRIX}, {}, (RuntimeError, {"a": ["b"]})),
}


@pytest.mark.parametrize(("tensors", "options", "expected"), TIED.values(), ids=TIED)
def test_the_name_that_is_kept(reference, ours, tensors, options, expected):
    """Two expectations are the reference's and ours."""
    pair = expected if isinstance(expected, tuple) else (expected, expected)
    for m, kept in zip((reference, ours), pair, strict=True):
        if kept is RuntimeError:
            with pytest.raises(RuntimeError):
                m.torch._remove_duplicate_names(tensors, **options)
        else:
            found = m.torch._remove_duplicate_names(tensors, **options)
            assert {name: sorted(dropped) for name, dropped in found.items()} == kept


def test_an_unknown_dtype_fails_only_where_its_tensor_is_loaded(reference, ours, tmp_path):
    entries = {
        name: {"dtype": dtype, "shape": [1], "data_offsets": [start, start + 4]}
        for name, dtype, start in (("new", "X9", 0), ("w", "F32", 4))
    }
    header = json.dumps(entries).encode()
    path = tmp_path / "m"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(reference.base.SafetensorError, match="unknown variant `X9`"):
        reference.base.safe_open(path, "pt")
    file = ours.base.safe_open(path, "pt")
    assert file.keys() == ["new", "w"]
    assert file.get_slice("new").get_dtype() == "X9"
    assert file.get_tensor("w") == 0
    assert [name for name, _ in ours.base.deserialize(path.read_bytes())] == ["new", "w"]
    for load in (lambda: file.get_tensor("new"), lambda: ours.torch.load_file(path)):
        with pytest.raises(tensorkeep.errors.DtypeError, match="`new`"):
            load()


def test_a_parameter_that_is_part_of_a_larger_storage_is_saved(ours, tmp_path):
    model = torch.nn.ParameterDict({"v": torch.nn.Parameter(torch.arange(10.0)[:5])})
    ours.torch.save_model(model, tmp_path / "m")
    assert torch.equal(ours.torch.load_file(tmp_path / "m")["v"], torch.arange(5.0))


def test_what_the_reference_gets_wrong(ours, tmp_path):
    matrix = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(ours.numpy.load(ours.numpy.save({"a": matrix.T}))["a"], matrix.T)
    conjugate = torch.tensor([1 + 2j]).conj()
    assert torch.equal(ours.torch.load(ours.torch.save({"a": conjugate}))["a"], torch.tensor([1 - 2j]))
    assert torch.equal(ours.torch.load(ours.torch.save({"a": torch.ones(2, 3).t()}))["a"], torch.ones(3, 2))
    assert ours.base.deserialize(ours.base.serialize({}, {})) == []
    narrow = np.arange(4).astype(ml_dtypes.float8_e4m3fn)
    assert np.array_equal(ours.numpy.load(ours.numpy.save({"a": narrow}))["a"], narrow)
    assert ours.numpy.load(bytearray(ours.numpy.save({"a": matrix})))["a"].shape == (2, 3)
    with pytest.raises(tensorkeep.errors.DtypeError, match="complex128"):
        ours.torch.save({"a": torch.zeros(1, dtype=torch.complex128)})
    path = tmp_path / "m"
    os.umask(umask := os.umask(0))
    ours.numpy.save_file({"a": matrix}, path)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask
    part = ours.base.safe_open(path, "np").get_slice("a")
    for index in np.s_[3:1], np.s_[:, -2:], np.s_[0:100], np.s_[::-1], None, [[0, 1]], np.s_[:, [2, 0]]:
        assert np.array_equal(part[index], matrix[index])


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("framework", ["np", "pt"])
def test_tensors_alias_where_the_references_do(ours, reference, tmp_path, framework, backend):
    path = tmp_path / "m"
    reference.torch.save_file({"a": torch.ones(4)}, path)
    seen = []
    for m in (reference, ours):
        file = m.base.safe_open(path, framework, backend=backend)
        file.get_tensor("a")[0] = 5
        seen.append(float(file.get_tensor("a")[0]))
    assert seen[1] == seen[0]


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("framework", ["np", "pt"])
def test_slices_outlive_the_block(either, tmp_path, framework, backend):
    path = tmp_path / "m"
    tensorkeep.torch.save_file({"a": torch.arange(4.0)}, path)
    with either.base.safe_open(path, framework, backend=backend) as file:
        part = file.get_slice("a")
    assert part[1:3].tolist() == [1.0, 2.0]


def test_bfloat16_in_torch_after_ml_dtypes_taught_numpy_its_name(ours, tmp_path):
    path = tmp_path / "m"
    ours.torch.save_file({"a": torch.ones(3, dtype=torch.bfloat16)}, path)
    assert ours.numpy.load_file(path)["a"].dtype == ml_dtypes.bfloat16
    assert ours.torch.load_file(path)["a"].dtype == torch.bfloat16


def test_many_loads_are_kept_with_few_descriptors(ours, tmp_path):
    path = tmp_path / "m"
    ours.torch.save_file({str(i): torch.full((300_000,), float(i)) for i in range(10)}, path)
    before = len(os.listdir("/proc/self/fd"))
    file = tensorkeep.open(path, framework="torch")
    kept = [lazy.load() for _ in range(30) for lazy in file.values()]
    kept += [tensor for _ in range(30) for tensor in ours.torch.load_file(path).values()]
    assert len(os.listdir("/proc/self/fd")) <= before + 3
    assert all(float(tensor[0]) == i % 10 for i, tensor in enumerate(kept))


def test_patching_the_stand_in_patches_the_module():
    code = (
        "import tensorkeep; tensorkeep.install_as_safetensors()\n"
        "import safetensors.torch, tensorkeep.torch; print(safetensors.torch is tensorkeep.torch)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True", done.stderr


def test_the_file_is_never_written_through_a_tensor(ours, tmp_path):
    path = tmp_path / "m"
    ours.torch.save_file({"a": torch.zeros(4)}, path)
    before = path.read_bytes()
    ours.torch.load_file(path)["a"].add_(1)
    ours.base.safe_open(path, "pt").get_tensor("a").add_(1)
    assert path.read_bytes() == before
    assert ours.torch.load_file(path)["a"].sum() == 0


def test_saving_over_the_file_that_was_loaded(ours, tmp_path):
    path = tmp_path / "m"
    ours.torch.save_file({"a": torch.arange(4.0)}, path)
    loaded = ours.torch.load_file(path)
    ours.torch.save_file({"a": loaded["a"] + 1, "b": loaded["a"][:2]}, path)
    assert torch.equal(loaded["a"], torch.arange(4.0))
    assert torch.equal(ours.torch.load_file(path)["a"], torch.arange(1.0, 5.0))


def test_safe_open_in_threads_after_fork_and_pickled(ours, tmp_path):
    path = tmp_path / "m"
    tensors = {str(i): torch.full((100,), float(i)) for i in range(50)}
    ours.torch.save_file(tensors, path)
    for backend in ("mmap", "pread"):
        file = ours.base.safe_open(path, "pt", backend=backend)
        with ThreadPoolExecutor(8) as pool:
            found = pool.map(file.get_tensor, list(tensors) * 5)
            assert all(map(torch.equal, found, list(tensors.values()) * 5))
        again = pickle.loads(pickle.dumps(file))
        assert torch.equal(again.get_slice("7")[3:5], tensors["7"][3:5])
        assert in_a_fork(file, "9", tensors["9"])
    assert threading.active_count() < 20


def in_a_fork(file, name, tensor):
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(file.get_tensor(name), tensor) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_file_object(tmp_path, ours):
    data = ours.torch.save({"a": torch.arange(3)})
    assert torch.equal(_safe_open_handle(io.BytesIO(data), "pt").get_tensor("a"), torch.arange(3))


class NameAndNumber:
    def __init__(self, file):
        self.name, self.fileno = file.name, file.fileno


def closed(file):
    file.close()
    return file


HANDLES = {
    "bytes": lambda path: path.open("rb"),
    "text": lambda path: path.open(),
    "unbuffered": lambda path: path.open("rb", buffering=0),
    "closed": lambda path: closed(path.open("rb")),
    "name and number": lambda path: NameAndNumber(path.open("rb")),
}


@pytest.mark.parametrize("make", HANDLES.values(), ids=HANDLES)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_handle_of_a_plain_file_is_opened_by_its_name(either, tmp_path, make):
    path = tmp_path / "m"
    tensorkeep.torch.save_file({"a": torch.arange(3.0)}, path)
    handle = make(path)
    file = either.handle(handle, "pt")
    file.get_tensor("a")[0] = 5
    assert file.get_tensor("a").tolist() == [5.0, 1.0, 2.0]  # mapped
    if hasattr(handle, "tell") and not handle.closed:
        assert handle.tell() == 0


@pytest.mark.parametrize("mode", ["r", "rb"])
def test_a_handle_whose_name_now_is_another_file_gives_its_own_bytes(ours, tmp_path, mode):
    for number in (1, 2):
        ours.torch.save_file({"a": torch.full((3,), float(number))}, tmp_path / f"{number}")
    with (tmp_path / "1").open(mode) as handle:
        os.replace(tmp_path / "2", tmp_path / "1")
        assert _safe_open_handle(handle, "pt").get_tensor("a").tolist() == [1.0, 1.0, 1.0]


def test_a_handle_that_unpacks_gives_what_it_unpacks(ours, tmp_path):
    with gzip.open(tmp_path / "m.gz", "wb") as packed:
        packed.write(ours.torch.save({"a": torch.arange(3)}))
    with gzip.open(tmp_path / "m.gz") as unpacked:
        assert torch.equal(_safe_open_handle(unpacked, "pt").get_tensor("a"), torch.arange(3))


def test_a_device_object(ours, tmp_path):
    ours.torch.save_file({"a": torch.arange(3)}, tmp_path / "m")
    assert ours.torch.load_file(tmp_path / "m", device=torch.device("cpu"))["a"].device.type == "cpu"
