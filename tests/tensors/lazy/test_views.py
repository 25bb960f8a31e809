"""Views: fewer tensors, other names, other dtypes, in any order of steps; what they read is what NumPy has."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

import tensorkeep
from tensorkeep.errors import DtypeError, RefusedError, TensorNotFoundError, TransportError
from tensorkeep.kinds.safetensors import TensorFile
from tensorkeep.tensors import LazyTensors, TensorView, load_together
from tests.support.tensors.plain_files import WAYS, Known, file_of, opened, same_bits

TENSORS = {
    "model.a.weight": Known.random("F32", (6, 5)),
    "model.a.bias": Known.random("F32", (5,), 1),
    "model.b.weight": Known.random("BF16", (4, 3), 2),
    "model.b.steps": Known.random("I64", (), 3),
    "head.weight": Known.random("F16", (0, 3), 4),
    "head.scale": Known.random("F64", (2, 2), 5),
    "HEAD": Known.random("C64", (3,), 6),
    "mask[0]": Known.random("BOOL", (7,), 7),
}
FILE = file_of(TENSORS)
NARROW = ml_dtypes.bfloat16


@pytest.fixture
def file(tmp_path: Path) -> TensorFile:
    path = tmp_path / "model.safetensors"
    path.write_bytes(FILE)
    return tensorkeep.open(path)


def as_cast(known: Known) -> np.ndarray[Any, Any]:
    """Return what a cast to BF16 gives."""
    if known.dtype.name not in {"F64", "F32", "F16"}:
        return known.array
    with np.errstate(all="ignore"):
        return known.array.astype(np.float32).astype(NARROW)


def numpy_of(tensor: Any) -> np.ndarray[Any, Any]:
    """Return the elements of a tensor of NumPy or torch."""
    if isinstance(tensor, np.ndarray):
        return tensor
    import torch

    return tensor.view(torch.int16).numpy().view(NARROW) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def same_numbers(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> bool:
    """Say whether two arrays are the same, but for which NaN is a NaN."""
    if expected.dtype.kind in "biu":
        return same_bits(found, expected)
    wide = "c16" if expected.dtype.kind == "c" else "f8"
    with np.errstate(all="ignore"):
        left, right = found.astype(wide), expected.astype(wide)
    return found.dtype == expected.dtype and np.array_equal(left, right, equal_nan=True)


def test_patterns_are_for_whole_names_and_case_matters(file: TensorFile) -> None:
    assert list(file.select("model.*")) == [name for name in TENSORS if name.startswith("model.")]
    assert list(file.select("head*")) == ["head.weight", "head.scale"]
    assert list(file.select("HEAD", "*.bias")) == ["model.a.bias", "HEAD"]
    assert list(file.select("model.?.weight", "model.[!a].steps")) == [
        "model.a.weight",
        "model.b.weight",
        "model.b.steps",
    ]
    assert list(file.select(lambda name: name.endswith("]"))) == ["mask[0]"]
    assert list(file.drop("model.*", lambda name: name == "HEAD")) == ["head.weight", "head.scale", "mask[0]"]
    assert list(file.drop("nothing")) == list(TENSORS)
    assert list(file.drop()) == list(TENSORS)


@given(pattern=st.text("mode.lhaw*?[]!b", max_size=6))
def test_patterns_mean_what_the_shell_means(pattern: str) -> None:
    file = tensorkeep.open(FILE)
    chosen = [name for name in TENSORS if fnmatchcase(name, pattern)]

    assert list(file.drop(pattern)) == [name for name in TENSORS if name not in chosen]
    if chosen:
        assert list(file.select(pattern)) == chosen
    else:
        with pytest.raises(TensorNotFoundError):
            file.select(pattern)


def test_a_selection_of_nothing_is_an_error(file: TensorFile) -> None:
    with pytest.raises(TensorNotFoundError, match=r"'model\.a\.wieght'.*Did you mean `model\.a\.weight`"):
        file.select("model.a.wieght")
    with pytest.raises(TensorNotFoundError):
        file.select()
    with pytest.raises(TypeError, match="patterns or functions"):
        file.select(["model.*"])  # type: ignore[arg-type]


def test_names_change_by_mapping_and_by_function(file: TensorFile) -> None:
    renamed = file.rename({"HEAD": "tail", "head.scale": "HEAD"})
    upper = file.rename(str.upper)

    assert list(renamed) == [{"HEAD": "tail", "head.scale": "HEAD"}.get(name, name) for name in TENSORS]
    assert [lazy.name for lazy in renamed.values()] == list(renamed)
    assert same_bits(renamed["HEAD"].load(), TENSORS["head.scale"].array)
    assert list(upper) == [name.upper() for name in TENSORS]
    assert list(file.add_prefix("x.").strip_prefix("x.")) == list(TENSORS)
    assert list(file.strip_prefix("model."))[:5] == ["a.weight", "a.bias", "b.weight", "b.steps", "head.weight"]


def test_two_tensors_never_get_one_name(file: TensorFile) -> None:
    with pytest.raises(RefusedError, match=r"two tensors would be called `HEAD`.*`head.scale` and `HEAD`"):
        file.rename({"head.scale": "HEAD"})
    with pytest.raises(RefusedError, match=r"`w`.*`model.a.weight` and `model.b.weight`"):
        file.rename(lambda name: "w" if name.endswith("weight") else name)
    with pytest.raises(RefusedError, match=r"`a` and `x.a`"):
        TensorView({"a": file["HEAD"], "x.a": file["head.scale"]}, path="p").strip_prefix("x.")


def test_a_renaming_that_cannot_be_is_an_error(file: TensorFile) -> None:
    with pytest.raises(TensorNotFoundError, match=r"no tensor `head\.scales` to rename.*Did you mean `head\.scale`"):
        file.rename({"head.scales": "s"})
    with pytest.raises(TensorNotFoundError, match=r"model\.safetensors"):
        file.rename({"other": "s"})
    with pytest.raises(TensorNotFoundError, match=r"no name begins with 'module\.'.*`model\.a\.weight`"):
        file.strip_prefix("module.")
    with pytest.raises(TypeError, match="name must be text, not int"):
        file.rename(len)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="by a mapping or a function"):
        file.rename("x")  # type: ignore[arg-type]


def test_a_view_is_a_mapping_that_describes_itself(file: TensorFile) -> None:
    view = file.select("model.*").strip_prefix("model.").cast("bf16")

    assert isinstance(view, LazyTensors)
    assert isinstance(view, Mapping)
    assert len(view) == 4
    assert "a.bias" in view
    assert "model.a.bias" not in view
    assert 3 not in view
    assert view.get("nothing", 7) == 7
    assert (view.nbytes, view.n_elements) == (60 + 10 + 24 + 8, 30 + 5 + 12 + 1)
    assert (file.nbytes, file.n_elements) == (len(FILE) - file.data_start, 30 + 5 + 12 + 1 + 4 + 3 + 7)
    assert view.path == file.path
    assert repr(view) == (
        f"TensorView({file.path!r}, 4 tensors, 102 bytes: "
        "a.weight BF16 [6, 5], a.bias BF16 [5], b.weight BF16 [4, 3], …)"
    )
    assert repr(view["a.bias"]) == "LazyTensor('a.bias', BF16, [5], 10 bytes, cast from F32)"
    with pytest.raises(TensorNotFoundError, match=r"does not contain tensor a.bais.*Did you mean `a.bias`"):
        view["a.bais"]
    with pytest.raises(TensorNotFoundError):
        view.load(["a.bias", "none"])


def test_metadata_goes_along(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.zeros(2)}, tmp_path / "with", metadata={"k": "v"}, digests=False)
    (tmp_path / "without").write_bytes(FILE)

    view = tensorkeep.open(tmp_path / "with").add_prefix("x.").cast("f16")
    view.metadata["k"] = "other"
    tensorkeep.save(view, tmp_path / "copy", digests=False)

    assert view.metadata == tensorkeep.open(tmp_path / "copy").metadata == {"k": "v"}
    assert not tensorkeep.open(tmp_path / "without").select("*").has_metadata


STEPS = st.lists(st.sampled_from(["select", "drop", "rename", "add", "cast"]), max_size=5)


@given(steps=STEPS, way=st.sampled_from(list(WAYS)), framework=st.sampled_from(["numpy", "torch"]), data=st.data())
def test_what_is_read_through_views_is_what_numpy_has(
    steps: list[str], way: str, framework: str, data: st.DataObject
) -> None:
    expected = {name: known.array for name, known in TENSORS.items()}
    with opened(FILE, way, framework=framework) as file:
        view: LazyTensors = file
        for step in steps:
            if step == "select":
                view = view.select("*model*", "*HEAD")
                expected = {name: array for name, array in expected.items() if "model" in name or name[-4:] == "HEAD"}
            elif step == "drop":
                view = view.drop("*.bias")
                expected = {name: array for name, array in expected.items() if not name.endswith(".bias")}
            elif step == "rename":
                view = view.rename(lambda name: name.replace("weight", "weight_"))
                expected = {name.replace("weight", "weight_"): array for name, array in expected.items()}
            elif step == "add":
                view = view.add_prefix("p.")
                expected = {"p." + name: array for name, array in expected.items()}
            else:
                view = view.cast(NARROW)
                expected = {
                    name: as_cast(Known(TENSORS["HEAD"].dtype, array))
                    if array.dtype.kind not in "f"
                    else narrowed(array)
                    for name, array in expected.items()
                }
        names = data.draw(st.lists(st.sampled_from(list(expected)), max_size=4))
        whole, some = view.load(), view.load(names)

        assert list(view) == list(whole) == list(expected)
        assert list(some) == [name for name in expected if name in names]
        for name, array in expected.items():
            assert view[name].shape == array.shape
            assert same_numbers(numpy_of(whole[name]), array)
            assert same_numbers(numpy_of(view[name].load()), array)
            assert same_numbers(numpy_of(view[name][...]), array)
            assert same_numbers(np.asarray(view[name]), array)
            if array.ndim:
                assert same_numbers(numpy_of(view[name][1:, ...]), array[1:])
        for name in names:
            assert same_numbers(numpy_of(some[name]), expected[name])


def narrowed(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        return array.astype(np.float32).astype(NARROW)


@given(prefix=st.sampled_from(["x.", "", "model."]), dtype=st.sampled_from(["bf16", "f16", "f64", "f8_e5m2"]))
def test_steps_commute(prefix: str, dtype: str) -> None:
    file = tensorkeep.open(FILE)
    orders = [
        file.select("model.*").add_prefix(prefix).cast(dtype),
        file.add_prefix(prefix).select(f"{prefix}model.*").cast(dtype),
        file.cast(dtype).drop("[!m]*", "mask*").rename(lambda name: prefix + name),
        file.cast(dtype).add_prefix(prefix).select(lambda name: name.startswith(f"{prefix}model.")),
    ]
    facts = [[(lazy.name, lazy.dtype, lazy.shape, lazy.nbytes) for lazy in view.values()] for view in orders]
    loads = [{name: array.tobytes() for name, array in view.load().items()} for view in orders]

    assert facts[1:] == facts[:-1]
    assert loads[1:] == loads[:-1]


def test_tensors_of_several_files_make_one_view(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(FILE)
    tensorkeep.save({"w": np.arange(5)}, tmp_path / "b")
    first, second = tensorkeep.open(tmp_path / "a"), tensorkeep.open(tmp_path / "b", framework="torch")
    view = TensorView({"n": second["w"], "s": first["head.scale"], "h": first["HEAD"]}, path="both")

    assert [type(tensor).__module__ for tensor in view.load().values()] == ["torch", "numpy", "numpy"]
    assert list(load_together({"h": view["h"], "n": view["n"]})) == ["h", "n"]
    assert same_bits(view.load()["h"], TENSORS["HEAD"].array)
    assert view.load()["n"].tolist() == list(range(5))


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_views_pickle_with_their_files(tmp_path: Path, framework: str, backend: Any) -> None:
    (tmp_path / "model").write_bytes(FILE)
    view = tensorkeep.open(tmp_path / "model", framework=framework, backend=backend)
    copy = pickle.loads(pickle.dumps(view.select("*.weight").cast("f16").add_prefix("x.")))

    assert repr(copy).startswith(f"TensorView({str(tmp_path / 'model')!r}, 3 tensors")
    for name, tensor in copy.load().items():
        with np.errstate(all="ignore"):
            expected = TENSORS[name.removeprefix("x.")].array.astype("f4").astype("f2")
        assert same_numbers(numpy_of(tensor), expected)


def test_threads_share_a_view(file: TensorFile) -> None:
    view = file.drop("HEAD").cast("bf16").add_prefix("x.")

    def read(_: int) -> bool:
        return all(
            same_numbers(view[name][...], as_cast(TENSORS[name[2:]])) and name in view.load([name]) for name in view
        )

    with ThreadPoolExecutor(6) as workers:
        assert all(workers.map(read, range(24)))


def test_a_view_of_a_closed_file_says_so(file: TensorFile) -> None:
    view = file.select("model.*").cast("bf16")
    file.close()

    with pytest.raises(TransportError, match="File is closed"):
        view.load()
    with pytest.raises(TransportError, match="File is closed"):
        view["model.a.bias"][0]


def test_where_bytes_stand_is_known_unless_they_are_cast(file: TensorFile) -> None:
    view = file.add_prefix("x.")
    lazy = view["x.head.scale"]

    assert lazy.source is not None
    assert lazy.span is not None
    assert bytes(lazy.source.read(lazy.span)) == TENSORS["head.scale"].data
    assert lazy.cast("f64") is lazy
    assert (lazy.cast("f32").source, lazy.cast("f32").span, lazy.cast("f32").digest) == (None, None, None)
    assert lazy.cast("f32").view() is None
    with pytest.raises(DtypeError, match="a floating-point tensor, found I64"):
        file["model.b.steps"].cast("f32")
