"""Where a caller errs, the faces raise the reference's class with the reference's text."""

import re

import numpy as np
import pytest
import safetensors
import torch

import tensorkeep

TENSORS = {"x": torch.arange(12.0).reshape(3, 4), "s": torch.tensor(3.0), "e": torch.zeros(0, 3)}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(TENSORS, path, metadata={"a": "b"})
    return path


def outcome(call):
    try:
        call()
    except Exception as error:
        return error
    pytest.fail("no error")


def assert_same(ours, reference, call):
    expected, found = outcome(lambda: call(reference)), outcome(lambda: call(ours))
    assert str(found) == text_of(expected)
    if type(expected) is safetensors.SafetensorError:
        assert isinstance(found, tensorkeep.SafetensorError)
    else:
        assert isinstance(found, type(expected))


def text_of(error):
    """Return what an error of the reference says; 0.9 has the argument of a TypeError in a note."""
    if type(error) is not TypeError:
        return str(error)
    arguments = [found[1] for note in getattr(error, "__notes__", ()) if (found := re.search(r"'(\w+)'", note))]
    return "".join(f"argument '{name}': " for name in arguments) + str(error)


def closed(m, path):
    with m.base.safe_open(path, "pt") as file:
        pass
    return file


OPENING = {
    "missing file": lambda m, path: m.base.safe_open("nope.safetensors", "pt"),
    "missing file, load_file": lambda m, path: m.torch.load_file("nope.safetensors"),
    "path is a number": lambda m, path: m.base.safe_open(3, "pt"),
    "path of bytes": lambda m, path: m.base.safe_open(b"f.safetensors", "pt"),
    "bad framework": lambda m, path: m.base.safe_open(path, "bad"),
    "framework in capitals": lambda m, path: m.base.safe_open(path, "PT"),
    "framework is a number": lambda m, path: m.base.safe_open(path, 3),
    "framework is None": lambda m, path: m.base.safe_open(path, None),
    "bad device": lambda m, path: m.base.safe_open(path, "pt", device="bad"),
    "negative device": lambda m, path: m.torch.load_file(path, device=-1),
    "device is a float": lambda m, path: m.torch.load_file(path, device=1.5),
    "meta device": lambda m, path: m.torch.load_file(path, device="meta"),
    "device of numpy": lambda m, path: m.base.safe_open(path, "np", device="cuda"),
    "bad backend": lambda m, path: m.base.safe_open(path, "pt", backend="bad"),
    "backend is None": lambda m, path: m.base.safe_open(path, "pt", backend=None),
    "unknown tensor": lambda m, path: m.base.safe_open(path, "pt").get_tensor("zz"),
    "unknown slice": lambda m, path: m.base.safe_open(path, "pt").get_slice("zz"),
    "tensor by number": lambda m, path: m.base.safe_open(path, "pt").get_tensor(3),
    "keys after close": lambda m, path: closed(m, path).keys(),
    "offset_keys after close": lambda m, path: closed(m, path).offset_keys(),
    "metadata after close": lambda m, path: closed(m, path).metadata(),
    "get_tensor after close": lambda m, path: closed(m, path).get_tensor("x"),
    "get_tensors after close": lambda m, path: closed(m, path).get_tensors(),
    "get_slice after close": lambda m, path: closed(m, path).get_slice("x"),
    "deserialize text": lambda m, path: m.base.deserialize("abc"),
    "load text": lambda m, path: m.torch.load("abc"),
    "getdtype": lambda m, path: m.torch._getdtype("QQ"),
}


@pytest.mark.parametrize("call", OPENING.values(), ids=OPENING)
def test_opening(ours, reference, path, call):
    assert_same(ours, reference, lambda m: call(m, path))


@pytest.mark.parametrize("device", ["cuda:99", 99, "npu"])
@pytest.mark.parametrize(
    "use",
    [
        lambda m, path, device: m.torch.load_file(path, device=device),
        lambda m, path, device: m.base.safe_open(path, "pt", device=device).get_tensor("x"),
        lambda m, path, device: m.base.safe_open(path, "pt", device=device).get_tensors(),
    ],
    ids=["load_file", "get_tensor", "get_tensors"],
)
def test_a_device_that_is_not_here(ours, reference, path, device, use):
    for m in (reference, ours):
        assert isinstance(outcome(lambda m=m: use(m, path, device)), RuntimeError)


def test_a_device_whose_module_torch_does_not_find(ours, path):
    assert isinstance(outcome(lambda: ours.torch.load_file(path, device="hpu")), tensorkeep.errors.DeviceError)


INDICES = ["[3]", "[-4]", "[1, 1, 1]", "[:, :, :]", "['a']", "[1.0]", "[..., ...]", "[::0]", "[0, 4]", "[..., 4]"]


@pytest.mark.parametrize(
    ("framework", "backend", "index"),
    [
        (framework, backend, index)
        for framework, backend in (("np", "mmap"), ("np", "pread"), ("pt", "mmap"), ("pt", "pread"))
        for index in INDICES
        if (framework, backend, index) != ("pt", "mmap", "[..., ...]")  # torch itself indexes there, and takes it
    ],
)
def test_slicing(ours, reference, path, framework, backend, index):
    def call(m):
        part = m.base.safe_open(path, framework, backend=backend).get_slice("x")
        eval(f"part{index}", {"part": part})

    assert_same(ours, reference, call)


BASE = torch.zeros(4, 4)
SAVING = {
    "no dict": lambda m, path: m.torch.save_file([1], path),
    "no tensor": lambda m, path: m.torch.save_file({"a": 1}, path),
    "sparse": lambda m, path: m.torch.save_file({"a": torch.eye(2).to_sparse()}, path),
    "shared": lambda m, path: m.torch.save_file({"a": BASE, "z": BASE[:1]}, path),
    "meta": lambda m, path: m.torch.save_file({"a": torch.zeros(3, device="meta")}, path),
    "name is a number": lambda m, path: m.torch.save_file({1: BASE}, path),
    "metadata of numbers": lambda m, path: m.torch.save_file({"a": BASE}, path, metadata={"a": 1}),
    "metadata is text": lambda m, path: m.torch.save_file({"a": BASE}, path, metadata="x"),
    "numpy, no array": lambda m, path: m.numpy.save_file({"a": 1}, path),
    "numpy, no dict": lambda m, path: m.numpy.save([1]),
    "numpy, objects": lambda m, path: m.numpy.save({"a": np.array([object()])}),
    "numpy, text": lambda m, path: m.numpy.save({"a": np.array(["a"])}),
    "numpy, complex128": lambda m, path: m.numpy.save({"a": np.zeros(1, complex)}),
    "numpy, dates": lambda m, path: m.numpy.save({"a": np.zeros(1, "M8[s]")}),
    "serialize, no dict": lambda m, path: m.base.serialize([("a", 1)]),
    "serialize None": lambda m, path: m.base.serialize(None),
    "serialize, metadata of numbers": lambda m, path: m.base.serialize({}, {"a": 1}),
    "serialize, metadata is a list": lambda m, path: m.base.serialize({}, [1]),
    "serialize, plain dicts": lambda m, path: m.base.serialize({"a": {"dtype": "float32"}}),
    "TensorSpec, format's name": lambda m, path: m.base.TensorSpec(dtype="F32", shape=[], data_ptr=0, data_len=4),
    "TensorSpec, negative": lambda m, path: m.base.TensorSpec(dtype="bool", shape=[-2], data_ptr=0, data_len=4),
}


@pytest.mark.parametrize("call", SAVING.values(), ids=SAVING)
def test_saving(ours, reference, tmp_path, call):
    assert_same(ours, reference, lambda m: call(m, tmp_path / "out.safetensors"))
    assert not list(tmp_path.iterdir())


def test_a_buffer_of_the_wrong_size(ours, reference):
    data = np.zeros(6, "f4")

    def call(m):
        spec = m.base.TensorSpec(dtype="float32", shape=[2, 3], data_ptr=data.ctypes.data, data_len=20)
        m.base.serialize({"a": spec})

    found, expected = outcome(lambda: call(ours)), outcome(lambda: call(reference))
    assert str(found).startswith(str(expected))


@pytest.mark.parametrize("target", ["missing/model.safetensors", "."])
def test_a_target_that_cannot_be_written(ours, reference, tmp_path, target):
    expected, found = (
        outcome(lambda m=m: m.torch.save_file({"a": BASE}, tmp_path / target)) for m in (reference, ours)
    )
    assert isinstance(found, tensorkeep.SafetensorError)
    assert str(found).startswith(str(expected).partition(" at path")[0].partition("Is a dir")[0])


def test_load_model_names_what_does_not_fit(ours, reference, path):
    def call(m):
        m.torch.load_model(torch.nn.Linear(2, 2), path)

    assert_same(ours, reference, call)


def test_nothing_to_keep_among_overlapping_parameters(ours, reference):
    base = torch.zeros(10)
    state = {"v": base[:5], "w": base[3:8]}
    found, expected = (outcome(lambda m=m: m.torch._remove_duplicate_names(state)) for m in (ours, reference))
    assert type(found) is type(expected) is RuntimeError
    assert str(found).partition("amongst")[0] == str(expected).partition("amongst")[0]
