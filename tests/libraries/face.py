"""The contract of a module that replaces one of safetensors: the same names, bytes, tensors and errors."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest

import tensorkeep

SHAPES = ((3, 4), (), (2, 2, 2), (0, 2), (5,))
NUMPY = ("bool", "int8", "uint8", "int16", "uint16", "float16", "int32", "uint32", "float32", "complex64")
WIDE = ("float64", "int64", "uint64")


def array_of(dtype: str, shape: tuple[int, ...]) -> Any:
    kind = getattr(ml_dtypes, dtype) if not hasattr(np, dtype) else np.dtype(dtype)
    return np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(kind)


class Face:
    """What every face does; subclasses name it."""

    module: ClassVar[str]
    dtypes: ClassVar[tuple[str, ...]]
    """Names of dtypes that both can save."""

    loaded_only: ClassVar[tuple[str, ...]] = ()
    """More dtypes that both can load."""

    @pytest.fixture
    def ours(self) -> ModuleType:
        return importlib.import_module(f"tensorkeep.{self.module}")

    @pytest.fixture
    def theirs(self) -> ModuleType:
        return importlib.import_module(f"safetensors.{self.module}")

    shapes: ClassVar[tuple[tuple[int, ...], ...]] = SHAPES
    """Shapes that both can save."""

    loaded_shapes: ClassVar[tuple[tuple[int, ...], ...]] = SHAPES
    """Shapes that both can load."""

    backends: ClassVar[dict[str, str]] = {"mmap": "mmap", "pread": "pread"}
    """Our backend, and the one of the reference to compare it with."""

    def tensor(self, array: Any) -> Any:
        """Return an array as a tensor of the library."""
        raise NotImplementedError

    def numbers(self, tensor: Any) -> Any:
        """Return a tensor's dtype, shape and elements."""
        raise NotImplementedError

    def tensors(self) -> dict[str, Any]:
        return {
            f"{dtype}{shape}": self.tensor(array_of(dtype, shape)) for dtype in self.dtypes for shape in self.shapes
        }

    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "x.safetensors"
        arrays = {
            f"{dtype}{shape}": array_of(dtype, shape)
            for dtype in (*self.dtypes, *self.loaded_only)
            for shape in self.loaded_shapes
        }
        tensorkeep.save(arrays, path)
        return path

    def test_every_name_is_there(self, ours: ModuleType, theirs: ModuleType) -> None:
        imported = {"Any", "Dict", "List", "Optional", "Union", "Array", "np", "numpy", "os", "sys"}
        assert {name for name in vars(theirs) if not name.startswith("__")} - imported <= set(vars(ours))

    def test_signatures_are_compatible(self, ours: ModuleType, theirs: ModuleType) -> None:
        for name in ("load", "load_file", "save", "save_file"):
            expected = inspect.signature(getattr(theirs, name)).parameters
            found = inspect.signature(getattr(ours, name)).parameters
            assert list(found)[: len(expected)] == list(expected), name
            for parameter, value in expected.items():
                assert found[parameter].kind == value.kind, (name, parameter)
                if parameter != "backend":  # ours chooses by file system
                    assert found[parameter].default == value.default, (name, parameter)

    def test_what_is_public_is_documented(self, ours: ModuleType) -> None:
        assert all(inspect.getdoc(getattr(ours, name)) for name in ours.__all__)
        assert ours is getattr(tensorkeep, self.module)

    @pytest.mark.parametrize("metadata", [None, {}, {"format": "ü"}], ids=str)
    def test_the_bytes_are_the_same(
        self, ours: ModuleType, theirs: ModuleType, tmp_path: Path, metadata: Any
    ) -> None:
        mine = self.tensors()
        ours.save_file(mine, tmp_path / "ours", metadata)
        theirs.save_file(self.tensors(), tmp_path / "theirs", metadata)

        assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
        assert ours.save(mine, metadata) == theirs.save(self.tensors(), metadata)
        assert {name: type(value) for name, value in mine.items()} == {
            name: type(value) for name, value in self.tensors().items()
        }

    @pytest.mark.parametrize("backend", ["mmap", "pread"])
    def test_the_tensors_are_the_same(
        self, ours: ModuleType, theirs: ModuleType, tmp_path: Path, backend: str
    ) -> None:
        path = self.file(tmp_path)

        expected = theirs.load_file(path, backend=self.backends[backend])
        for found in (ours.load_file(path, backend=backend), ours.load(path.read_bytes())):
            assert found.keys() == expected.keys()
            for name, tensor in found.items():
                assert type(tensor) is type(expected[name])
                assert self.numbers(tensor) == self.numbers(expected[name]), name

    def test_safe_open_gives_the_same(self, ours: ModuleType, theirs: ModuleType, tmp_path: Path) -> None:
        path = self.file(tmp_path)
        framework = {"tensorflow": "tf"}.get(self.module, self.module)

        with ours.safe_open(path, framework) as mine, theirs.safe_open(path, framework) as reference:
            for name in list(reference.keys()):
                if name.startswith("float64") and self.module == "mlx":
                    continue  # ours are exact
                assert self.numbers(mine.get_tensor(name)) == self.numbers(reference.get_tensor(name)), name
            name = f"{self.dtypes[-1]}(3, 4)"
            part, expected = mine.get_slice(name)[1:, :2], reference.get_slice(name)[1:, :2]
            assert self.numbers(part) == self.numbers(expected)

    def test_what_is_no_file_is_refused(self, ours: ModuleType, theirs: ModuleType, tmp_path: Path) -> None:
        for module in (ours, theirs):
            with pytest.raises(FileNotFoundError):
                module.load_file(tmp_path / "missing")
        for content in (b"", b"\0" * 8, b"\xff" * 100):
            errors = []
            for module in (ours, theirs):
                with pytest.raises(Exception) as caught:
                    module.load(content)
                errors.append(caught.value)
            assert "SafetensorError" in type(errors[1]).__name__
            assert isinstance(errors[0], tensorkeep.SafetensorError)

    def test_saved_to_no_directory(self, ours: ModuleType, theirs: ModuleType, tmp_path: Path) -> None:
        for module in (ours, theirs):
            with pytest.raises(Exception, match="No such file or directory"):
                module.save_file(self.tensors(), tmp_path / "missing" / "x")

    def test_names_and_metadata_are_text(self, ours: ModuleType, theirs: ModuleType) -> None:
        tensors = {"a": self.tensor(array_of("float32", (2,)))}
        for module in (ours, theirs):
            with pytest.raises(TypeError):
                module.save({1: tensors["a"]})
            with pytest.raises(TypeError):
                module.save(dict(tensors), {"a": 1})
