"""Names of NumPy and ml_dtypes in the closed table: arrays, scalars and dtypes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from math import prod
from typing import Any

from tensorkeep.errors import LimitError, PickleError
from tensorkeep.formats.pickles.values import ArrayRecord, DtypeRecord, Name, Payload, Unknown, short_repr
from tensorkeep.limits import MAX_GRAPH_NODES, MAX_I64, MAX_NDIM

_NUMBER = re.compile(r"([<>=|]?)(b1|i[1248]|u[1248]|f[248]|c8|c16|f16|c32)")
_TEXT = re.compile(r"([<>=|]?)([SUV])([0-9]{1,9})")
_TIME = re.compile(r"([<>=|]?)([mM])8")
_UNITS = frozenset({b"Y", b"M", b"W", b"D", b"h", b"m", b"s", b"ms", b"us", b"ns", b"ps", b"fs", b"as", b"generic"})
_WIDTHS = {"S": 1, "U": 4, "V": 1}
_MAX_I32 = 2**31 - 1
"""Largest element in bytes, and largest multiple of a time unit, that a NumPy dtype can have."""
_OBJECT = "|O"
_MAX_FIELDS = 1_000
"""Fields of a structured dtype, nested ones included."""

_ML_DTYPES = {
    "bfloat16": 2,
    **dict.fromkeys(("float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("float8_e4m3", "float8_e3m4", "float8_e4m3b11fnuz", "float4_e2m1fn"), 1),
    **dict.fromkeys(("float6_e2m3fn", "float6_e3m2fn", "int4", "uint4", "int2", "uint2"), 1),
}
"""Dtypes of ml_dtypes, and bytes of one element in memory."""

_SCALARS = (
    *(
        "bool_",
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "longlong",
        "ulonglong",
    ),
    *("float16", "float32", "float64", "longdouble", "complex64", "complex128", "str_", "bytes_", "datetime64"),
    *("timedelta64", "void", "generic", "number", "integer", "floating", "ndarray"),
)

_ARRAY = ("numpy", "ndarray")
_STARTS = (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"))
"""Module and name of the function that starts an array."""


def _reconstructed(module: str, cls: Any, shape: Any, kind: Any) -> Any:
    """Start an array, whose state follows; instances of subclasses are unknown."""
    if not isinstance(cls, Unknown) or cls.qualified_name != "numpy.ndarray" or type(shape) is not tuple:
        return Unknown(module, "_reconstruct", (cls, shape, kind))
    return ArrayRecord()


def starts_array(function: Any, cls: Any) -> bool:
    """Say whether a call of a name, with a class and a shape, starts an array."""
    return (
        type(function) is Name
        and type(cls) is Name
        and (function.module, function.name) in _STARTS
        and (cls.module, cls.name) == _ARRAY
    )


def _scalar(dtype: Any, data: Any = b"") -> ArrayRecord:
    if type(dtype) is not DtypeRecord or dtype.text == _OBJECT:
        raise TypeError("expected the dtype of a number")
    record = ArrayRecord(is_scalar=True)
    _fill(record, (), dtype, data, is_fortran=False)
    return record


def _from_buffer(buffer: Any, dtype: Any, shape: Any, order: Any, axis_order: Any = None) -> ArrayRecord:
    if type(dtype) is not DtypeRecord or type(order) is not str or order not in {"C", "F"} or axis_order is not None:
        raise TypeError("expected a dtype, and the order C or F")
    record = ArrayRecord()
    _fill(record, shape, dtype, _fixed(buffer), is_fortran=order == "F")
    return record


def _fixed(buffer: Any) -> Any:
    """Return bytes in place of a bytearray."""
    if type(buffer) is Payload:
        return Payload(buffer.parts)
    return bytes(buffer) if type(buffer) is bytearray else buffer


def _dtype(descr: Any, align: Any = False, copy: Any = False) -> Any:
    if isinstance(descr, Unknown) and descr.is_reference and descr.module == "ml_dtypes":
        return DtypeRecord(descr.name)
    if type(descr) is not str or type(align) not in {bool, int} or type(copy) not in {bool, int}:
        return Unknown("numpy", "dtype", (descr, align, copy))
    if descr in {"O", "O8", "|O"}:
        return DtypeRecord(_OBJECT)
    if descr in _ML_DTYPES:
        return DtypeRecord(descr)
    if _NUMBER.fullmatch(descr) or _TEXT.fullmatch(descr) or _TIME.fullmatch(descr):
        if _itemsize(descr) > _MAX_I32:
            raise ValueError(f"expected a dtype of at most {_MAX_I32:,} bytes, found {descr}")
        return DtypeRecord(_in_order(descr, descr[0]))
    raise ValueError(f"expected the text of a dtype, found {short_repr(descr)}")


def set_dtype_state(record: DtypeRecord, state: Any) -> None:
    """Set byte order, time unit, fields or subarray shape of a dtype."""
    is_state = type(state) is tuple and len(state) in {8, 9} and type(state[1]) is str
    if not is_state or state[1] not in {"<", ">", "|", "="}:
        raise PickleError("invalid state of a NumPy dtype", found=f"{type(state).__name__}")
    if record.is_used:
        raise PickleError("a NumPy dtype changes after an array uses it", found=record.text)
    if state[2] is not None and record.text.startswith("|V"):
        record.base = _base(state[2], _itemsize(record.text))
        return
    if state[3] is not None and record.text.startswith("|V"):
        record.fields = _fields(state[3], state[4], _itemsize(record.text))
        if any(
            field.text == _OBJECT for _, field, _ in record.fields
        ):  # the elements are pickled as tuples of objects
            record.text, record.fields = _OBJECT, ()
        return
    text = record.text.lstrip("<>=|")
    if text in _ML_DTYPES or record.text == _OBJECT:
        return
    match = _TIME.fullmatch(text)
    if match is not None and len(state) == 9:
        text += _unit(state[8])
    record.text = _in_order(text, state[1])


def _fields(names: Any, fields: Any, itemsize: int) -> tuple[tuple[str, DtypeRecord, int], ...]:
    """Return the fields of a structured dtype; each must lie inside the element."""
    if type(names) is not tuple or type(fields) is not dict or set(map(type, names)) != {str}:
        raise PickleError("invalid fields of a NumPy dtype", found=short_repr(names))
    if len(set(names)) != len(names) or fields.keys() != set(names):
        raise PickleError("the fields of a NumPy dtype and its names of fields differ", found=short_repr(names))
    found = tuple(_field(name, fields[name], itemsize) for name in names)
    if sum(dtype.n_leaves for _, dtype, _ in found) > _MAX_FIELDS:
        raise LimitError("a NumPy dtype has too many fields", expected=f"at most {_MAX_FIELDS:,}", found="more")
    return found


def _base(state: Any, itemsize: int) -> tuple[DtypeRecord, tuple[int, ...]]:
    """Return dtype and shape of a subarray dtype; they must fill the element."""
    dtype: Any = state[0] if type(state) is tuple and len(state) == 2 else None
    if type(dtype) is not DtypeRecord or dtype.text == _OBJECT:
        raise PickleError("invalid subarray dtype of a NumPy dtype", found=short_repr(state))
    shape: Any = state[1]
    if type(shape) is not tuple or len(shape) > MAX_NDIM or not all(type(n) is int and n >= 0 for n in shape):
        raise PickleError("invalid subarray shape of a NumPy dtype", found=short_repr(shape))
    if _itemsize(dtype.text) * prod(shape) != itemsize:
        raise PickleError("the subarrays of a NumPy dtype do not fill its elements", found=short_repr(shape))
    dtype.is_used = True
    return dtype, shape


def _field(name: str, field: Any, itemsize: int) -> tuple[str, DtypeRecord, int]:
    dtype, start = field[:2] if type(field) is tuple and len(field) > 1 else (None, None)
    if type(dtype) is not DtypeRecord or type(start) is not int:
        raise PickleError("invalid field of a NumPy dtype", found=short_repr(name))
    if not 0 <= start <= itemsize - _itemsize(dtype.text):
        raise PickleError("a field of a NumPy dtype extends beyond the element", found=short_repr(name))
    dtype.is_used = True
    return name, dtype, start


def _in_order(text: str, order: str) -> str:
    """Return the text of a dtype, prefixed with its byte order."""
    text = text.lstrip("<>=|")
    if text in {"b1", "i1", "u1"} or text[0] in "SV":
        return f"|{text}"
    return f"{'>' if order == '>' else '<'}{text}"


def _unit(metadata: Any) -> str:
    """Return a time unit in NumPy's notation, such as `[ns]` or `[25s]`."""
    unit = metadata[-1] if type(metadata) is tuple and len(metadata) == 2 else metadata
    is_unit = type(unit) is tuple and len(unit) == 4 and type(unit[0]) is bytes and unit[0] in _UNITS
    if not is_unit or any(type(n) is not int for n in unit[1:]) or not 1 <= unit[1] <= _MAX_I32 or unit[2] != 1:
        raise PickleError("invalid unit of a NumPy time", found=short_repr(unit))
    if unit[0] == b"generic":
        return ""
    return f"[{unit[1] if unit[1] != 1 else ''}{unit[0].decode()}]"


def set_array_state(record: ArrayRecord, state: Any) -> None:
    """Set shape, dtype and elements of an array that was started."""
    if record.dtype.text:
        raise PickleError("a NumPy array is filled twice")
    if type(state) is not tuple or len(state) != 5 or type(state[2]) is not DtypeRecord or type(state[3]) is not bool:
        raise PickleError("invalid state of a NumPy array", found=type(state).__name__)
    _, shape, dtype, is_fortran, data = state
    _fill(record, shape, dtype, data, is_fortran=is_fortran)


def _fill(record: ArrayRecord, shape: Any, dtype: DtypeRecord, data: Any, *, is_fortran: bool) -> None:
    if type(shape) is not tuple or len(shape) > MAX_NDIM or not all(type(n) is int and n >= 0 for n in shape):
        raise PickleError("invalid shape of a NumPy array", found=short_repr(shape))
    n_elements = prod(shape)
    itemsize = _itemsize(dtype.text)
    if prod(extent or 1 for extent in shape) > (MAX_I64 // itemsize if itemsize else MAX_GRAPH_NODES):
        raise LimitError("a NumPy array has more elements than NumPy can hold", found=short_repr(shape))
    if dtype.text == _OBJECT:
        if type(data) is not list or len(data) != n_elements:
            raise PickleError("a NumPy array of objects does not have the number of elements of its shape")
    else:
        data = data.encode("latin-1") if type(data) is str else data  # Python 2 wrote bytes as text
        nbytes = n_elements * itemsize
        is_bytes = type(data) is bytes or (type(data) is Payload and not data.is_bytearray)
        if not is_bytes or len(data) != nbytes:
            raise PickleError(
                "the data of a NumPy array does not have the size of its shape",
                expected=f"{nbytes:,} bytes for {dtype.text} {list(shape)}",
                found=f"{len(data):,}" if is_bytes else type(data).__name__,
            )
    dtype.is_used = True
    record.dtype, record.shape, record.is_fortran, record.data = dtype, shape, is_fortran, data


def itemsize_of(dtype: Any) -> int:
    """Return the bytes of one element; 0 for Python objects, and for what is not a dtype."""
    is_plain = type(dtype) is DtypeRecord and dtype.text != _OBJECT
    return _itemsize(dtype.text) if is_plain else 0


@lru_cache(1024)
def _itemsize(text: str) -> int:
    """Return the bytes of one element; of an object, the bytes of its address."""
    if text == _OBJECT:
        return 8
    if text in _ML_DTYPES:
        return _ML_DTYPES[text]
    match = _TEXT.fullmatch(text)
    if match is not None:
        return _WIDTHS[match[2]] * int(match[3])
    if text.lstrip("<>=|")[0] in "mM":
        return 8
    return int(text.lstrip("<>=|")[1:])


CALLS: dict[tuple[str, str], Callable[..., Any] | None] = {
    **{("numpy", name): None for name in _SCALARS},
    **{("ml_dtypes", name): None for name in _ML_DTYPES},
    **{(module, name): partial(_reconstructed, module) for module, name in _STARTS},
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
    ("numpy", "dtype"): _dtype,
}
"""Module and name to the function of ours that a call is replaced by; None if a call gives an `Unknown`."""
