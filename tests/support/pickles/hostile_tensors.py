"""Pickles that lie about tensors, storages, arrays and containers."""

from __future__ import annotations

from tests.support.pickles.assembler import (
    DOUBLED,
    HOOKS,
    NONE,
    TRUE,
    build,
    call,
    dict_of,
    get,
    global_name,
    list_of,
    names,
    new_object,
    number,
    put,
    real,
    stack_name,
    storage,
    stream,
    tensor,
    text,
    tuple_of,
)
from tests.support.pickles.hostile_case import Hostile, read, refused

__all__ = ["TENSORS"]

LIMITS = ("LimitError", "PickleError")


def size(*extents: int) -> bytes:
    """Push a tuple of numbers."""
    return tuple_of(*(number(extent) for extent in extents))


STORAGES = (
    refused("an id that is a text", stream(text("storage") + b"Q")),
    refused("an id that is a line of text", stream(b"P0\n")),
    refused("an id that is a list", stream(list_of(text("storage"), NONE, NONE, NONE, NONE) + b"Q")),
    refused(
        "an id of another kind", stream(tuple_of(text("stowage"), NONE, text("0"), text("cpu"), number(1)) + b"Q")
    ),
    refused("an id that is too short", stream(tuple_of(text("storage")) + b"Q")),
    refused("an id that is too long", stream(storage(more=NONE + NONE))),
    refused("an id that is endless", stream(DOUBLED + b"Q")),
    refused("an id of the doubled tuple within", stream(storage(key=DOUBLED))),
    refused("an id without a stack", stream(b"Q")),
    refused("a class that is a text", stream(storage(cls=text("FloatStorage")))),
    refused("a class of another module", stream(storage(cls=global_name("evil", "FloatStorage")))),
    refused("a class that is a function", stream(storage(cls=global_name("json", "dumps")))),
    refused("a class that is no storage", stream(storage(cls=global_name("torch", "Tensor")))),
    refused("a class that is an array", stream(storage(cls=global_name("numpy", "ndarray")))),
    refused("a key that is a number", stream(storage(key=number(0)))),
    refused("a key that is bytes", stream(storage(key=b"C\x010"), protocol=3)),
    refused("a key that is a label", stream(storage(key=global_name("torch", "float32")))),
    refused("a location that is a number", stream(storage(location=number(0)))),
    refused("a location that is None", stream(storage(location=NONE))),
    refused("a count that is negative", stream(storage(n_elements=number(-1)))),
    refused("a count that is huge", stream(storage(n_elements=number(2**63)))),
    refused("a count of 8,000 bits", stream(storage(n_elements=number(2**8000)))),
    refused("a count that is a bool", stream(storage(n_elements=TRUE))),
    refused("a count that is a float", stream(storage(n_elements=real(4.0)))),
    refused("two sizes of one key", stream(list_of(storage(), storage(n_elements=number(5))))),
    refused("two dtypes of one key", stream(list_of(storage(), storage(cls=global_name("torch", "DoubleStorage"))))),
    refused("two places of one key", stream(list_of(storage(), storage(location=text("cuda:0"))))),
    refused("a view out of its storage", stream(storage(more=tuple_of(text("v"), number(1), number(4))))),
    refused("a view that begins before", stream(storage(more=tuple_of(text("v"), number(-1), number(1))))),
    refused("a view that is a list", stream(storage(more=list_of(text("v"), number(0), number(1))))),
    refused("a view that is endless", stream(storage(more=DOUBLED))),
    read("a key with a path", stream(storage(key=text("../../etc/passwd"))), None),
)

VIEWS = (
    refused("more than its storage", stream(tensor(size(5)))),
    refused("an offset behind its end", stream(tensor(offset=number(1)))),
    refused("a negative offset", stream(tensor(size(1), offset=number(-1)))),
    refused("a negative stride", stream(tensor(size(2), size(-1), offset=number(1)))),
    refused("a negative extent", stream(tensor(size(-1)))),
    refused("strides that reach out", stream(tensor(size(2), size(4)))),
    refused("an offset that overflows 64 bits", stream(tensor(size(4), offset=number(2**64)))),
    refused("a stride that overflows 64 bits", stream(tensor(size(2), size(2**64 - 3)))),
    refused("extents whose product overflows", stream(tensor(size(2**32, 2**32, 4), size(0, 0, 1))), "LimitError"),
    refused("a stride that nobody can hold", stream(tensor(size(1), size(2**100))), *LIMITS),
    refused("an extent that nobody can hold, of nothing", stream(tensor(size(2**100, 0), size(0, 0))), *LIMITS),
    refused("an extent that is a bool", stream(tensor(tuple_of(TRUE)))),
    refused("an extent that is a float", stream(tensor(tuple_of(real(4.0))))),
    refused("a shape that is a list", stream(tensor(list_of(number(4))))),
    refused(
        "a shape that is a range", stream(tensor(call(global_name("builtins", "range"), number(0), number(2**40))))
    ),
    refused("a shape that is endless", stream(tensor(tuple_of(DOUBLED)))),
    refused("a shape that is a text", stream(tensor(text("4")))),
    refused("strides that are fewer", stream(tensor(size(2, 2), size(2)))),
    refused("65 dimensions", stream(tensor(size(*[1] * 65), size(*[0] * 65))), "LimitError"),
    refused(
        "100,000 extents of 1,000 bytes",
        stream(
            tensor(
                b"(" + number(2**8000) + put(9) + get(9) * 100_000 + b"t",
                b"(" + number(1) + put(9) + get(9) * 100_000 + b"t",
            )
        ),
        *LIMITS,
    ),
    refused("requires_grad that is a number", stream(tensor(requires_grad=number(1)))),
    refused("requires_grad that is None", stream(tensor(requires_grad=NONE))),
    refused("requires_grad that is endless", stream(tensor(requires_grad=DOUBLED))),
    refused("metadata that is unknown", stream(tensor(more=dict_of(text("evil"), TRUE)))),
    refused("metadata that is a list", stream(tensor(more=list_of(TRUE)))),
    refused("metadata whose flag is a number", stream(tensor(more=dict_of(text("conj"), number(1))))),
    refused("metadata that is endless", stream(tensor(more=dict_of(text("x"), DOUBLED)))),
    refused("a storage that is None", stream(tensor(of=NONE))),
    refused("a storage that is a tensor", stream(tensor(of=tensor()))),
    refused("a storage that is a record", stream(tensor(of=new_object(global_name("torch", "FloatStorage"))))),
    refused("too few arguments", stream(call(global_name("torch._utils", "_rebuild_tensor_v2"), storage()))),
    refused("too many arguments", stream(tensor(more=NONE * 5))),
    read("a terabyte of one number", stream(tensor(size(2**38), size(0))), None),
)

V3 = global_name("torch._utils", "_rebuild_tensor_v3")


def typed(label: bytes, shape: bytes, n_bytes: int = 4, offset: int = 0, more: bytes = b"") -> bytes:
    """Push a tensor of a storage without dtype."""
    untyped = storage(cls=global_name("torch.storage", "UntypedStorage"), n_elements=number(n_bytes), more=more)
    return call(V3, untyped, number(offset), shape, size(1), b"\x89", HOOKS, label)


DTYPES = (
    refused("more of another dtype", stream(typed(global_name("torch", "int32"), size(2)))),
    refused("half a number", stream(typed(global_name("torch", "int32"), size(1), 3))),
    refused("a dtype that is a text", stream(typed(text("torch.int32"), size(1)))),
    refused("a dtype that is a layout", stream(typed(global_name("torch", "strided"), size(1)))),
    refused("a dtype that is a function", stream(typed(global_name("torch", "load_it"), size(1)))),
    refused("a dtype that is endless", stream(typed(DOUBLED, size(1)))),
    refused(
        "a dtype without bytes of its own",
        stream(typed(global_name("torch", "quint4x2"), size(1))),
        "UnsupportedError",
    ),
    refused(
        "a view that splits a number",
        stream(typed(global_name("torch", "int32"), size(1), 8, more=tuple_of(text("v"), number(1), number(7)))),
    ),
)

QUANTIZED = global_name("torch._utils", "_rebuild_qtensor")
QINT8 = storage(cls=global_name("torch", "QInt8Storage"))


def quantized(quantizer: bytes, of: bytes = QINT8) -> bytes:
    """Push a quantized tensor."""
    return call(QUANTIZED, of, number(0), size(4), size(1), quantizer, b"\x89", HOOKS)


AFFINE = global_name("torch", "per_tensor_affine")
SPARSE = global_name("torch._utils", "_rebuild_sparse_tensor")
COO = global_name("torch", "sparse_coo")
NESTED = global_name("torch._utils", "_rebuild_nested_tensor")
JAGGED = global_name("torch.nested._internal.nested_tensor", "_rebuild_njt")
COMPOSITES = (
    refused("a quantizer that is None", stream(quantized(NONE))),
    refused("a quantizer that is empty", stream(quantized(b")"))),
    refused("a quantizer that is endless", stream(quantized(DOUBLED))),
    refused("a scale that is a text", stream(quantized(tuple_of(AFFINE, text("1"), number(0))))),
    refused(
        "a scheme that is a dtype", stream(quantized(tuple_of(global_name("torch", "int8"), real(1.0), number(0))))
    ),
    refused(
        "scales that are a list",
        stream(quantized(tuple_of(global_name("torch", "per_channel_affine"), b"]", b"]", number(0)))),
    ),
    refused("quantized floats", stream(quantized(tuple_of(AFFINE, real(1.0), number(0)), storage()))),
    refused(
        "a layout that is a text",
        stream(call(SPARSE, text("torch.sparse_coo"), tuple_of(tensor(), tensor(), size(4)))),
    ),
    refused(
        "a layout that is dense",
        stream(call(SPARSE, global_name("torch", "strided"), tuple_of(tensor(), tensor(), size(4)))),
    ),
    refused("a layout that is endless", stream(call(SPARSE, DOUBLED, tuple_of(tensor(), tensor(), size(4))))),
    refused("indices that are None", stream(call(SPARSE, COO, tuple_of(NONE, tensor(), size(4))))),
    refused(
        "values that are a function", stream(call(SPARSE, COO, tuple_of(tensor(), global_name("a", "b"), size(4))))
    ),
    refused(
        "a sparse shape that overflows",
        stream(call(SPARSE, COO, tuple_of(tensor(), tensor(), size(2**62, 2**62)))),
        *LIMITS,
    ),
    refused("a sparse shape that is negative", stream(call(SPARSE, COO, tuple_of(tensor(), tensor(), size(-1))))),
    refused("a sparse shape that is endless", stream(call(SPARSE, COO, tuple_of(tensor(), tensor(), DOUBLED)))),
    refused("sparse parts that are too many", stream(call(SPARSE, COO, tuple_of(*[tensor()] * 6)))),
    refused("nested parts that are lists", stream(call(NESTED, tensor(), b"]", b"]", b"]"))),
    refused("jagged parts that are none", stream(call(JAGGED, b"}"))),
    refused("jagged parts that are a text", stream(call(JAGGED, text("a")))),
    refused(
        "meta of a huge shape",
        stream(
            call(
                global_name("torch._utils", "_rebuild_meta_tensor_no_storage"),
                global_name("torch", "float32"),
                size(2**40, 2**40),
                size(1, 1),
                b"\x89",
            )
        ),
        "LimitError",
    ),
    refused("a size that is a text", stream(call(global_name("torch", "Size"), text("4")))),
    refused("a size that is endless", stream(call(global_name("torch", "Size"), tuple_of(DOUBLED)))),
    refused("a size that is deep", stream(call(global_name("torch", "Size"), tuple_of(b")" + b"\x85" * 100_000)))),
    refused("a device that is a number", stream(call(global_name("torch", "device"), number(1)))),
    refused("a device of a negative number", stream(call(global_name("torch", "device"), text("cuda"), number(-1)))),
    refused(
        "a layout that nobody knows",
        stream(call(global_name("torch.serialization", "_get_layout"), text("os.system"))),
    ),
)

NUMPY = names(
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "scalar"),
)


def dtype(descr: str, order: bytes = text("<"), more: bytes = b"") -> bytes:
    """Push a NumPy dtype; `names` stand in the memo."""
    made = call(get(2), text(descr), b"\x89", TRUE)
    return build(made, tuple_of(number(3), order, NONE, NONE, NONE, number(-1), number(-1), number(0), more))


def array(shape: bytes, of: bytes, data: bytes, fortran: bytes = b"\x89") -> bytes:
    """Push a NumPy array."""
    begun = call(get(0), get(1), tuple_of(number(0)), b"C\x01b")
    return build(begun, tuple_of(number(1), shape, of, fortran, data))


F4 = dtype("f4")
FOUR = b"C\x04abcd"


def numpy_case(name: str, *parts: bytes, errors: tuple[str, ...] = ()) -> Hostile:
    """A pickle of NumPy that is refused."""
    return refused(f"NumPy: {name}", stream(NUMPY, *parts, protocol=3), *errors)


ARRAYS = (
    numpy_case("an array that is never filled", list_of(call(get(0), get(1), tuple_of(number(0)), b"C\x01b"))),
    numpy_case("a shape of more than there is", array(size(2), F4, FOUR)),
    numpy_case("a shape of less than there is", array(size(0), F4, FOUR)),
    numpy_case("a negative shape", array(size(-1, -1), F4, FOUR)),
    numpy_case("a shape that overflows", array(size(2**32, 2**32), F4, FOUR), errors=LIMITS),
    numpy_case("a shape that overflows to what there is", array(size(2**62, 4), F4, b"C\x00"), errors=LIMITS),
    numpy_case("a shape of huge numbers", array(size(*[2**8000] * 60), F4, FOUR), errors=LIMITS),
    numpy_case("a shape that is a list", array(list_of(number(1)), F4, FOUR)),
    numpy_case("a shape that is endless", array(tuple_of(DOUBLED), F4, FOUR)),
    numpy_case("a shape of bools", array(tuple_of(TRUE), F4, FOUR)),
    numpy_case("65 dimensions", array(size(*[1] * 65), F4, FOUR)),
    numpy_case("2^60 elements of no bytes", array(size(2**60), dtype("S0"), b"C\x00"), errors=LIMITS),
    numpy_case("2^100 times no elements", array(size(2**100, 0), F4, b"C\x00"), errors=LIMITS),
    numpy_case("objects that are bytes", array(size(1), dtype("O8", text("|")), FOUR)),
    numpy_case("objects that are too few", array(size(2), dtype("O8", text("|")), list_of(NONE))),
    numpy_case("a text of 10^9 letters", array(size(1), dtype("U999999999"), FOUR)),
    numpy_case("a length of 30 digits", array(size(1), dtype("U" + "9" * 30), FOUR)),
    numpy_case("a dtype that is a list", array(size(1), b"]", FOUR)),
    numpy_case("a dtype that is a function", array(size(1), global_name("json", "dumps"), FOUR)),
    numpy_case("a dtype of fields in text", array(size(1), dtype("f4,O"), FOUR)),
    numpy_case("a dtype without end", dtype("f4", order=DOUBLED)),
    numpy_case("a unit without end", dtype("M8", more=tuple_of(b"}", DOUBLED))),
    numpy_case(
        "a unit that is code",
        dtype("M8", more=tuple_of(b"}", tuple_of(b"C\x03evl", number(1), number(1), number(1)))),
    ),
    numpy_case("an order that is a number", array(size(1), F4, FOUR, number(2))),
    numpy_case(
        "an array that is filled twice",
        build(array(size(1), F4, FOUR), tuple_of(number(1), size(1), F4, b"\x89", FOUR)),
    ),
    numpy_case("a scalar of objects", call(get(3), dtype("O8", text("|")), NONE)),
    numpy_case("a scalar that is too long", call(get(3), F4, b"C\x08abcdefgh")),
    numpy_case("a scalar without a dtype", call(get(3), NONE, FOUR)),
    numpy_case(
        "a buffer in an order without end",
        call(global_name("numpy.core.numeric", "_frombuffer"), FOUR, F4, size(1), DOUBLED),
    ),
    numpy_case(
        "a buffer that is a text",
        call(global_name("numpy.core.numeric", "_frombuffer"), text("abcd"), F4, size(2), text("C")),
    ),
)

CONTAINERS = (
    refused("a key twice", stream(dict_of(text("a"), number(1), text("a"), number(2)))),
    refused("a key twice, by SETITEM", stream(b"}" + (text("a") + NONE + b"s") * 2)),
    refused("a key twice, as two types", stream(dict_of(number(1), NONE, TRUE, NONE))),
    refused("a key twice, in an OrderedDict", stream(HOOKS + (text("a") + NONE + b"s") * 2)),
    refused("a key without a value", stream(dict_of(text("a")))),
    refused("a key that is a list", stream(dict_of(b"]", NONE))),
    refused("a key that holds a list", stream(dict_of(tuple_of(b"]"), NONE))),
    refused("a key that is a dict", stream(dict_of(b"}", NONE))),
    refused("a member that is a list", stream(b"\x8f(]\x90", protocol=4)),
    refused("a member that is a set", stream(b"(\x8f\x91", protocol=4)),
    refused("a Counter of a list", stream(call(global_name("collections", "Counter"), list_of(number(1))))),
    refused("a deque of a text", stream(call(global_name("collections", "deque"), text("abc")))),
    refused("a deque with a negative bound", stream(call(global_name("collections", "deque"), b"]", number(-1)))),
    refused("a deque with a huge bound", stream(call(global_name("collections", "deque"), b"]", number(2**200)))),
    refused("a set of a text", stream(call(global_name("builtins", "set"), text("abc")))),
    refused("a set of lists", stream(call(global_name("builtins", "set"), list_of(b"]")))),
    refused(
        "a set of a range",
        stream(
            call(global_name("builtins", "set"), call(global_name("builtins", "range"), number(0), number(2**60)))
        ),
    ),
    refused(
        "a tensor of a range of arguments",
        stream(
            call(
                global_name("torch._tensor", "_rebuild_from_type_v2"),
                global_name("torch._utils", "_rebuild_tensor_v2"),
                global_name("torch", "Tensor"),
                call(global_name("builtins", "range"), number(0), number(2**60)),
                b"}",
            )
        ),
    ),
    refused("a range of texts", stream(call(global_name("builtins", "range"), text("a"), text("b")))),
    refused("a complex of texts", stream(call(global_name("builtins", "complex"), text("1"), text("2")))),
    refused(
        "a complex of huge numbers", stream(call(global_name("builtins", "complex"), number(2**8000), number(1)))
    ),
    refused(
        "a date of garbage", stream(call(global_name("datetime", "datetime"), b"C\x0a" + b"\xff" * 10), protocol=3)
    ),
    refused("a date that is too short", stream(call(global_name("datetime", "datetime"), b"C\x01a"), protocol=3)),
    refused("a zone of 10^9 days", stream(call(global_name("datetime", "timedelta"), number(2**62)))),
    refused("a Decimal of text", stream(call(global_name("decimal", "Decimal"), text("__import__('os')")))),
    refused("a Decimal of 10^6 digits", stream(call(global_name("decimal", "Decimal"), text("9" * 10**6)))),
    refused("a path of numbers", stream(call(global_name("pathlib", "Path"), number(1)))),
    refused(
        "a defaultdict that is called with pairs", stream(call(global_name("collections", "OrderedDict"), text("ab")))
    ),
    refused("a metadata without end", stream(build(HOOKS, dict_of(text("x"), DOUBLED)))),
    refused("an encoding without end", stream(call(global_name("_codecs", "encode"), text("a"), DOUBLED))),
    read(
        "a name of protocol 4 that is Python 2's",
        stream(call(stack_name("collections", "OrderedDict")), protocol=4),
        "OrderedDict()",
    ),
)

TENSORS = (*STORAGES, *VIEWS, *DTYPES, *COMPOSITES, *ARRAYS, *CONTAINERS)
