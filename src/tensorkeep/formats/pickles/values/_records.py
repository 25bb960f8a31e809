"""The inert records that a pickle is read into, beside plain containers and data.

A record can be looked at and nothing else: it has no method that a pickle could reach, and calling, importing or
unpickling it is impossible.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Literal, Self

import msgspec

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.formats.pickles.values._payload import Payload
from tensorkeep.texts import counted

LabelKind = Literal["dtype", "device", "layout", "qscheme", "memory_format"]


class Unknown:
    """Something that a pickle would have imported, called or built. It was not.

    Compared by identity, immutable, and refuses to be pickled.

    Attributes:
        module: The module that the pickle would import it from.
        name: A class or function; dotted if the pickle would access attributes from there.
        args: What it would have been called with; None if only the name itself was mentioned.
        state: What would have been set on the result (`__setstate__` or attributes); None for nothing.
        items: What would have been appended, added (a list) or set by key (a dict); None for nothing.
    """

    __slots__ = ("args", "items", "module", "name", "state")

    module: str
    name: str
    args: tuple[Any, ...] | None
    state: Any
    items: list[Any] | dict[Any, Any] | None

    def __init__(
        self,
        module: str,
        name: str,
        args: tuple[Any, ...] | None = None,
        state: Any = None,
        items: list[Any] | dict[Any, Any] | None = None,
    ) -> None:
        for slot, value in (("module", module), ("name", name), ("args", args), ("state", state), ("items", items)):
            object.__setattr__(self, slot, value)

    @property
    def qualified_name(self) -> str:
        """Module and name, such as `"argparse.Namespace"`."""
        return f"{self.module}.{self.name}"

    @property
    def is_reference(self) -> bool:
        """Whether only the name was mentioned: a class or function as a value."""
        return self.args is None

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse."""
        raise AttributeError(f"an Unknown cannot be changed: {name}")

    def __delattr__(self, name: str) -> None:
        """Refuse."""
        raise AttributeError(f"an Unknown cannot be changed: {name}")

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse: what was not run here must not run elsewhere."""
        raise TypeError(f"an Unknown cannot be pickled ({self.qualified_name}): it is not data")

    def __repr__(self) -> str:
        if self.args is None:
            return f"Unknown({self.qualified_name:.200})"
        facts = [counted(len(self.args), "argument")] if self.args else []
        if self.state is not None:
            facts.append(counted(len(self.state), "attribute") if type(self.state) is dict else "a state")
        if self.items:
            facts.append(counted(len(self.items), "item"))
        call = f"{self.qualified_name:.200}({'…' if self.args else ''})"
        return f"Unknown({': '.join([call, *([', '.join(facts)] if facts else [])])})"


class Name(Unknown):
    """A name of the closed table: if the pickle calls it, `call` is used instead.

    Attributes:
        call: Own function that returns a record or plain data; None if the name is only known to be harmless, so that
            calling it gives an `Unknown`.
        is_cheap: Whether `call` neither copies nor hashes its arguments, and never returns an `Unknown`.
    """

    __slots__ = ("call", "is_cheap")

    call: Callable[..., Any] | None
    is_cheap: bool

    def __init__(
        self, module: str, name: str, call: Callable[..., Any] | None = None, *, is_cheap: bool = False
    ) -> None:
        super().__init__(module, name)
        object.__setattr__(self, "call", call)
        object.__setattr__(self, "is_cheap", is_cheap)


class Deque(deque[Any]):
    """A deque that is safe to free at any depth: CPython bounds that recursion only for subclasses."""

    __slots__ = ()


class DefaultDict(defaultdict[Any, Any]):
    """A defaultdict, subclassed for the same reason."""

    __slots__ = ()


class Namespace(dict[str, Any]):
    """The attributes of an object that has nothing else, such as an `argparse.Namespace`."""

    __slots__ = ()


class Label(str):
    """A constant of torch as text, such as `"torch.float32"`, `"cuda:0"` or `"torch.sparse_coo"`.

    Attributes:
        kind: What the constant is.
    """

    __slots__ = ("kind",)

    kind: LabelKind

    def __new__(cls, text: str, kind: LabelKind) -> Self:
        label = super().__new__(cls, text)
        label.kind = kind
        return label

    def __reduce__(self) -> tuple[Any, ...]:
        return Label, (str(self), self.kind)


class StorageRecord(msgspec.Struct, frozen=True):
    """The memory that tensors are views of.

    Attributes:
        key: Its name in the pickle, and of its member in an archive.
        dtype: Name in the dtype table, such as `"F32"`; `"U8"` if it was saved without one.
        location: The device it was saved from, such as `"cuda:0"`.
        n_elements: Elements of that dtype.
    """

    key: str
    dtype: str
    location: str
    n_elements: int

    @property
    def nbytes(self) -> int:
        """Bytes of the storage."""
        return ALL_BY_NAME[self.dtype].nbytes(self.n_elements)


class StorageView(msgspec.Struct, frozen=True):
    """A part of a storage that torch 0.x treats as a storage of its own.

    Attributes:
        storage: The whole.
        offset: Its first element.
        n_elements: Elements in it.
    """

    storage: StorageRecord
    offset: int
    n_elements: int


class TensorRecord(msgspec.Struct, frozen=True, eq=False):
    """A tensor: a strided view that lies inside its storage.

    Attributes:
        storage: What it is a view of; None if it has no data (device meta).
        dtype: Name in the dtype table.
        offset: Its first element, counted from the start of the storage in the tensor's own dtype.
        shape: Elements along each dimension.
        strides: Elements from one entry of each dimension to the next; 0 where it is expanded.
        requires_grad: Whether autograd records operations on it.
        kind: Whether it was a plain tensor or a parameter.
        is_conj: Whether its values are the conjugates of those in the storage.
        is_neg: Whether its values are the negatives of those in the storage.
        attributes: What else was saved with it, such as attributes of a subclass; or None.
        subclass: Module and name of its class, if that is not a class of tensors known here.
    """

    storage: StorageRecord | None
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    requires_grad: bool = False
    kind: Literal["tensor", "parameter"] = "tensor"
    is_conj: bool = False
    is_neg: bool = False
    attributes: Any = None
    subclass: tuple[str, str] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether nothing else was saved with it."""
        return self.attributes is None and self.subclass is None


class CompositeRecord(msgspec.Struct, frozen=True, eq=False):
    """A tensor made of several: sparse, quantized or nested. Its contents have not been checked.

    Attributes:
        kind: Such as `"sparse_coo"`, `"sparse_csr"`, `"per_tensor_affine"`, `"nested"`.
        parts: Name to tensor, such as `{"indices": …, "values": …}`.
        settings: Everything else it needs, such as `{"shape": (3, 4)}`; plain data.
    """

    kind: str
    parts: dict[str, Any]
    settings: dict[str, Any]


class DtypeRecord:
    """A NumPy dtype.

    Attributes:
        text: NumPy's text with the byte order, such as `"<f4"`; or a name of ml_dtypes, such as `"bfloat16"`.
        fields: Name, dtype and first byte of each field; a structured dtype's text gives only its size.
        base: Dtype and shape of the elements if they are small arrays (a subarray dtype); else None.
        is_used: Whether an array or another dtype uses it, so that it must not change any more.
    """

    __slots__ = ("base", "fields", "is_used", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.fields: tuple[tuple[str, DtypeRecord, int], ...] = ()
        self.base: tuple[DtypeRecord, tuple[int, ...]] | None = None
        self.is_used = False

    @property
    def n_leaves(self) -> int:
        """Number of fields, nested ones included; 1 for a dtype without fields."""
        inner = [dtype for _, dtype, _ in self.fields] + ([self.base[0]] if self.base else [])
        return sum(dtype.n_leaves for dtype in inner) or 1

    def __repr__(self) -> str:
        return f"dtype({self.text!r})"


class ArrayRecord:
    """A NumPy array or scalar, whose elements are in the pickle itself.

    Attributes:
        dtype: Of the elements; its text is `"|O"` for Python objects, and empty until the pickle declares it.
        shape: Elements along each dimension.
        data: The elements, or where they are in the file; a list of the pickle's values if they are Python objects.
        is_fortran: Whether the first dimension varies fastest.
        is_scalar: Whether it is a NumPy scalar instead of an array.
    """

    __slots__ = ("data", "dtype", "is_fortran", "is_scalar", "shape")

    def __init__(
        self,
        dtype: DtypeRecord | None = None,
        shape: tuple[int, ...] = (),
        data: bytes | Payload | list[Any] = b"",
        *,
        is_fortran: bool = False,
        is_scalar: bool = False,
    ) -> None:
        self.dtype = dtype or DtypeRecord("")
        self.shape = shape
        self.data = data
        self.is_fortran = is_fortran
        self.is_scalar = is_scalar

    @property
    def holds_objects(self) -> bool:
        """Whether its elements are Python objects instead of numbers, texts or times."""
        return type(self.data) is list

    def __repr__(self) -> str:
        return f"ArrayRecord({self.dtype.text}, {list(self.shape)})"
