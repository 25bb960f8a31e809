"""A tensor that knows its shape now and reads its data when it is indexed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import index as as_int
from typing import TYPE_CHECKING, Any, Generic, overload

from tensorkeep.arrays import ArrayT, TensorToWrite, prepares_exports
from tensorkeep.arrays.elements import known_dtype
from tensorkeep.errors import DtypeError, SelectionError
from tensorkeep.markup import page
from tensorkeep.tensors.indexing import shard_range
from tensorkeep.tensors.lazy._dir import names_for_people
from tensorkeep.tensors.lazy._facts import TensorFacts, about, selected_of
from tensorkeep.tensors.readers import (
    BlockReader,
    CastReader,
    Reader,
    StochasticReader,
    cast_target,
    key_of,
    reads_blocks,
)
from tensorkeep.texts import shape_text, size_text

if TYPE_CHECKING:
    import cupy
    import jax
    import mlx.core as mx
    import paddle
    import tensorflow as tf
    import torch
    from numpy.typing import NDArray

    from tensorkeep.arrays import CupyName, JaxName, MlxName, NumpyName, PaddleName, TensorflowName, TorchName


class LazyTensor(TensorFacts, Generic[ArrayT]):
    """One tensor of a file, read when it is indexed.

    `name`, `dtype`, `shape` and the like cost nothing. Indexing reads only the elements that are asked for, and means
    what it means for a NumPy array of that shape: integers, half-open slices with steps, `...`, `None`, lists and
    arrays of positions, boolean masks. The result is a tensor of the file's framework, on its device, with memory of
    its own.

        with tensorkeep.open("model.safetensors") as file:
            lazy = file["embedding.weight"]
            lazy.shape, lazy.dtype     # (50257, 768), "BF16": nothing is read
            lazy[1000:2000, ::2]       # reads part of 1,000 rows; shape (1000, 384)
            lazy.load()                # the whole tensor

    `numpy.asarray(lazy)` reads the whole tensor as a NumPy array, whatever the framework. `from_dlpack(lazy)` of any
    library takes the tensor that `load` returns, without a copy where the two libraries can share it.

    You get these from an open file or checkpoint; there is no need to make one.

    Args:
        name: Its name.
        entry: The tensor's entry in the file's header: dtype, shape, place.
        reader: Reads the file.
        digest: BLAKE3 digest of its bytes (32 bytes), if the file has one.
        library: The array library that it was saved from, if known.
        marks: What that library keeps beside the elements, such as `{"class": "Parameter", "grad": True}`.

    Attributes:
        name: Its name in the file, or in the view that it was taken from.
        library: The array library that it was saved from; None if the file does not say.
        marks: What that library keeps beside the elements.
    """

    __slots__ = ()

    def renamed(self, name: str) -> LazyTensor[ArrayT]:
        """Return the same tensor under another name.

        Args:
            name: Its new name.
        """
        return self._as(name, self.library, self.marks)

    def marked(self, library: str | None, marks: Mapping[str, Any]) -> LazyTensor[ArrayT]:
        """Return the same tensor with what an array library keeps beside its elements.

        Args:
            library: The array library that it was saved from; None if unknown.
            marks: What that library keeps.
        """
        return self._as(self.name, library, marks)

    @overload
    def with_framework(self, framework: NumpyName, device: Any = ...) -> LazyTensor[NDArray[Any]]: ...
    @overload
    def with_framework(self, framework: TorchName, device: Any = ...) -> LazyTensor[torch.Tensor]: ...
    @overload
    def with_framework(self, framework: JaxName, device: Any = ...) -> LazyTensor[jax.Array]: ...
    @overload
    def with_framework(self, framework: TensorflowName, device: Any = ...) -> LazyTensor[tf.Tensor]: ...
    @overload
    def with_framework(self, framework: MlxName, device: Any = ...) -> LazyTensor[mx.array]: ...
    @overload
    def with_framework(self, framework: PaddleName, device: Any = ...) -> LazyTensor[paddle.Tensor]: ...
    @overload
    def with_framework(self, framework: CupyName, device: Any = ...) -> LazyTensor[cupy.ndarray]: ...
    @overload
    def with_framework(self, framework: str, device: Any = ...) -> LazyTensor: ...
    def with_framework(self, framework: str, device: Any = "cpu") -> LazyTensor:
        """Return the same tensor for another array library than the one that the file was opened for.

        Args:
            framework: The array library, such as `"jax"`.
            device: The device, in the library's own terms.
        """
        reader = self._reader.with_framework(framework, device)
        return LazyTensor(self.name, self._entry, reader, self._digest, library=self.library, marks=self.marks)

    def _as(self, name: str, library: str | None, marks: Mapping[str, Any]) -> LazyTensor[ArrayT]:
        return LazyTensor(name, self._entry, self._reader, self._digest, library=library, marks=marks)

    def cast(self, dtype: Any, *, seed: int | None = None) -> LazyTensor[ArrayT]:
        """Return this tensor with its numbers converted to another floating-point dtype when they are read.

        Numbers are rounded to nearest, ties to even, as by torch's `.to(dtype)` and NumPy's `.astype(dtype)`. Where
        these two differ, every framework gives the same numbers here: F64 goes through F32 on the way to anything
        narrower, and numbers beyond F8_E4M3, infinities among them, become its largest (±448). In other dtypes such
        numbers become infinite, or NaN in the FNUZ dtypes. Scales of quantized tensors are not applied.

        Args:
            dtype: F64, F32, F16, BF16, or an F8 with a sign, in any usual spelling, such as `"bf16"`, `"bfloat16"`,
                `torch.bfloat16`, `numpy.float16`.

            seed: Rounds at random instead of to nearest, so that the mean of many numbers is right: one between two
                neighbors becomes the nearer more often. An element gets the same number whatever part is read, by
                the seed, the tensor's name and its position.

        Returns:
            A lazy tensor with the same name and shape; this one if it already has the dtype.

        Raises:
            DtypeError: If there is no such dtype, it is not one of those above, or this tensor is not floating point.
            TypeError: If `seed` is not an integer.
        """
        target = cast_target(dtype)
        if target.name == self.dtype:
            return self
        if not self.is_floating_point:
            raise DtypeError(
                f"tensor `{self.name}` cannot be cast to {target.name}",
                tensor=self.name,
                expected="a floating-point tensor",
                found=self.dtype,
                hint=f'.dequantize("{target.name.lower()}") gives its numbers' if self.is_quantized else None,
            )
        if seed is not None:
            return self._read_by(StochasticReader(self._reader, target, key=key_of(as_int(seed), self.name)))
        return self._read_by(CastReader(self._reader, target))

    def dequantize(self, dtype: Any = "bf16") -> LazyTensor[ArrayT]:
        """Return this quantized tensor as numbers, which are computed when they are read.

        A slice reads only the blocks that hold it. The numbers are computed in F32, bit for bit as the `gguf` package
        computes them, and then rounded as by `cast`.

            file["blk.0.attn_q.weight"].dequantize("f32")[:10]

        Args:
            dtype: The dtype of the numbers, one that `cast` accepts.

        Returns:
            A lazy tensor with the same name and shape.

        Raises:
            DtypeError: If there is no such dtype, the tensor is not quantized, or its type has no numbers of its own
                (Q8_1, and the blocks of big-endian files).
        """
        reader = self._blocks("dequantized")
        return self._read_by(reader.dequantized(self.name, self._entry, cast_target(dtype)))

    def raw(self) -> LazyTensor[ArrayT]:
        """Return the blocks of this quantized tensor as bytes, which are mapped where the file is.

        Returns:
            A lazy U8 tensor with the same name, whose rows are the bytes of this tensor's rows.

        Raises:
            DtypeError: If the tensor is not quantized.
        """
        entry, reader = self._blocks("taken as blocks").raw(self._entry)
        return LazyTensor(self.name, entry, reader, library=self.library, marks=self.marks)

    def _blocks(self, what: str) -> BlockReader:
        if not reads_blocks(self._reader):
            raise DtypeError(
                f"tensor `{self.name}` cannot be {what}",
                tensor=self.name,
                expected="a quantized tensor, of a type such as Q4_K",
                found=self.dtype,
            )
        return self._reader

    def _read_by(self, reader: Reader) -> LazyTensor[ArrayT]:
        return LazyTensor(self.name, self._entry, reader, library=self.library, marks=self.marks)

    def __getitem__(self, index: Any) -> ArrayT:
        """Read the elements that an index selects, as for a NumPy array of this shape.

        Raises:
            SelectionError: If the index does not fit the shape (also an IndexError).
            DtypeError: If the dtype is unknown here or to the framework.
            LimitError: If there are more dimensions than the framework allows.
            TransportError: If the bytes cannot be read.
        """
        selected: ArrayT = self._reader.read(self.name, self._entry, selected_of(self, index))
        return selected

    def shard(self, dim: int, rank: int, world: int) -> ArrayT:
        """Read one rank's part of the tensor, cut as `torch.chunk` and DTensor's `Shard` cut it.

        All ranks get ceil(extent / world) positions of the dimension, except the last ones, which get what is left.

        Args:
            dim: The dimension that is cut; negative ones count from the last.
            rank: The rank, 0 <= rank < world.
            world: The number of ranks.

        Returns:
            A tensor of the file's framework, on its device. If there are more ranks than positions, the last ranks
            get one without elements.

        Raises:
            SelectionError: If there is no such dimension or rank (also an IndexError).
            DtypeError: If the dtype is unknown here or to the framework.
            LimitError: If there are more dimensions than the framework allows.
            TransportError: If the bytes cannot be read.
        """
        if not -self.ndim <= dim < self.ndim:
            raise about(self, SelectionError(f"there is no dimension {dim}", found=f"shape {list(self.shape)}"))
        axis = dim % self.ndim
        try:
            part = shard_range(self.shape[axis], rank, world)
        except SelectionError as error:
            raise about(self, error) from None
        return self[(slice(None),) * axis + (slice(part.start, part.stop),)]

    def load(self) -> ArrayT:
        """Read the whole tensor, without a copy if the file is mapped.

        Returns:
            A tensor of the file's framework, on its device. It is writable, writing to it never reaches the file, and
            it shares memory with no other tensor.

        Raises:
            DtypeError: If the dtype is unknown here or to the framework.
            LimitError: If there are more dimensions than the framework allows, or an expanded view would take far
                more memory than it takes in the file.
            TransportError: If the bytes cannot be read.
        """
        loaded: ArrayT = self._reader.load({self.name: self._entry})[self.name]
        return loaded

    def view(self) -> ArrayT | None:
        """Return the whole tensor as a view, on the CPU, of the one mapping that this open file keeps.

        Cheaper than `load` for very many tensors. But views of one tensor see each other's writes, and so does
        indexing; the file itself never changes.

        Returns:
            A tensor of the file's framework; None if the file is not mapped, if elements share bytes (F4, F6), if
            the tensor is not in the file in this form (after a `cast`, a view with gaps), or if it is large and the
            device of the file copies by itself, so that `load` is faster.

        Raises:
            DtypeError: If the dtype is unknown here or to the framework.
            LimitError: If there are more dimensions than the framework allows.
            TransportError: If the file is closed.
        """
        return self._reader.view(self.name, self._entry)

    def place(self, tensor: Any) -> Any:
        """Move a tensor to the device that the file was opened for.

        Args:
            tensor: A `view`, or a part of one.

        Raises:
            UnsupportedError: If there is no such device.
        """
        return self._reader.place(tensor)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        tensors = self._reader.with_framework("numpy").load({self.name: self._entry})
        return np.asarray(tensors[self.name], dtype=dtype)

    def __dlpack__(self, **options: Any) -> Any:
        """Read the whole tensor in the file's framework, and export it."""
        tensor: Any = self.load()
        adapter = self._reader.adapter
        if prepares_exports(adapter):
            tensor = adapter.for_export(tensor)
        return tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return where `__dlpack__` exports it, as DLPack numbers devices; nothing is read."""
        import numpy as np

        dtype = self._reader.cast_to or known_dtype(self.name, self._entry)
        nothing = self._reader.adapter.from_elements(np.zeros(0, dtype.bits_name), dtype)
        kind, index = nothing.__dlpack_device__()
        return int(kind), int(index or 0)  # Paddle's index of the CPU is None

    def __len__(self) -> int:
        """Return the extent of the first dimension."""
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator[ArrayT]:
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        stored = "" if self.dtype == self._entry.dtype else f", cast from {self._entry.dtype}"
        return f"LazyTensor({self.name!r}, {self.dtype}, {list(self.shape)}, {self.nbytes:,} bytes{stored})"

    def _repr_html_(self) -> str:
        facts = ["LazyTensor", self.dtype, shape_text(self.shape), size_text(self.nbytes)]
        return page(self.name or '""', facts)

    def __dir__(self) -> list[str]:
        return names_for_people(super().__dir__())

    def tensor_to_write(self) -> TensorToWrite:
        """Describe the tensor for writing.

        Returns:
            A `StoredTensor` with the bytes of the file, so that tensors of unknown dtypes can be copied; if they are
            not in the file in this form, a description whose bytes are made piece by piece.

        Raises:
            DtypeError: If safetensors has no such dtype (C32, C128).
            LimitError: If an expanded view would take far more bytes than it takes in the file.
        """
        return self._reader.tensor_to_write(self.name, self._entry, self._digest)
