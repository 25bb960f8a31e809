"""Pickles that break the rules of the opcodes, or cost much."""

from __future__ import annotations

import struct

from tests.support.pickles.assembler import (
    DOUBLED,
    NONE,
    call,
    dict_of,
    get,
    global_name,
    list_of,
    names,
    number,
    put,
    real,
    repeated,
    stream,
    tensor,
    text,
    tuple_of,
)
from tests.support.pickles.hostile_case import Hostile, inert, read, refused

__all__ = ["STREAMS"]

CUT = "PickleCutError"
LIMIT = "LimitError"
U32, U64 = struct.Struct("<I").pack, struct.Struct("<Q").pack

LENGTHS = tuple(
    refused(f"{name} of {length:,} bytes", stream(code + pack(length) + b"abc", protocol=5), CUT)
    for name, code, pack, lengths in (
        ("BINUNICODE", b"X", U32, (5, 2**31, 2**32 - 1)),
        ("BINUNICODE8", b"\x8d", U64, (5, 2**31, 2**63 - 1, 2**63, 2**64 - 1)),
        ("BINBYTES", b"B", U32, (5, 2**32 - 1)),
        ("BINBYTES8", b"\x8e", U64, (5, 2**40, 2**63, 2**64 - 1)),
        ("BYTEARRAY8", b"\x96", U64, (5, 2**40, 2**63, 2**64 - 1)),
        ("FRAME", b"\x95", U64, (5, 2**40, 2**63, 2**64 - 1)),
        ("BINSTRING", b"T", U32, (5, 2**31 - 1)),
        ("SHORT_BINUNICODE", b"\x8c", lambda n: bytes([n]), (5, 255)),
        ("SHORT_BINBYTES", b"C", lambda n: bytes([n]), (5, 255)),
        ("SHORT_BINSTRING", b"U", lambda n: bytes([n]), (5, 255)),
        ("LONG1", b"\x8a", lambda n: bytes([n]), (5, 255)),
        ("LONG4", b"\x8b", U32, (5, 1024)),
    )
    for length in lengths
)

BROKEN = (
    refused("nothing", b"", CUT),
    refused("PROTO alone", b"\x80", CUT),
    refused("a protocol of the future", b"\x80\x06N.", "UnsupportedError"),
    refused("a protocol of the future in the middle", stream(b"\x80\xff", NONE), "UnsupportedError"),
    refused("no such opcode", stream(b"\xff")),
    refused("no STOP", stream(NONE)[:-1], CUT),
    refused("STOP alone", b"."),
    refused("a mark at the end", stream(NONE, b"(")),
    refused("values left over", stream(NONE, NONE)),
    refused("values left below a mark", stream(NONE, b"(", NONE)),
    refused("POP below the start", stream(b"00", NONE)),
    refused("POP_MARK without a mark", stream(NONE, b"1")),
    refused("TUPLE without a mark", stream(NONE, b"t")),
    refused("SETITEMS without a mark", stream(b"}u")),
    refused("what is taken from below a mark: APPEND", stream(b"](", NONE, b"a")),
    refused("what is taken from below a mark: REDUCE", stream(global_name("a", "b"), b"(", b")R1")),
    refused("what is taken from below a mark: BUILD", stream(call(global_name("a", "b")), b"(}b")),
    refused("what is taken from below a mark: DUP", stream(NONE, b"(2t")),
    refused("what is taken from below a mark: TUPLE2", stream(NONE, b"(", NONE, b"\x86")),
    refused("what is taken from below a mark: MEMOIZE", stream(NONE, b"(\x940", protocol=4)),
    refused("BINGET of nothing", stream(get(0))),
    refused("LONG_BINGET of nothing", stream(b"j" + U32(2**32 - 1))),
    refused("GET of nothing", stream(b"g0\n")),
    refused("GET of no number", stream(b"gx\n")),
    refused("PUT of no number", stream(NONE, b"px\n")),
    refused("PUT of a negative number", stream(NONE, b"p-1\n")),
    refused("PUT of 3,000 digits", stream(NONE, b"p" + b"9" * 3000 + b"\n")),
    refused("INT of no number", stream(b"Iabc\n")),
    refused("INT of nothing", stream(b"I\n")),
    refused("INT of 10,000 digits", stream(b"I" + b"9" * 10_000 + b"\n")),
    refused("INT in octal", stream(b"I010\n")),
    refused("INT with a plus sign", stream(b"I+1\n")),
    refused("INT of minus zero", stream(b"I-0\n")),
    refused("INT of two characters", stream(b"I 1\n")),
    refused("INT with a zero byte", stream(b"I1\0\n")),
    refused("LONG of 10^6 digits", stream(b"L" + b"9" * 10**6 + b"L\n")),
    refused("LONG with a leading zero", stream(b"L010L\n")),
    refused("LONG4 of a negative length", stream(b"\x8b" + struct.pack("<i", -1))),
    refused("LONG4 of 2^31 bytes", stream(b"\x8b" + struct.pack("<i", 2**31 - 1)), LIMIT, CUT),
    refused("LONG4 of 1 MB", stream(b"\x8b" + U32(10**6) + bytes(10**6)), LIMIT),
    refused("BINSTRING of a negative length", stream(b"T" + struct.pack("<i", -1))),
    refused("FLOAT of no number", stream(b"Fabc\n")),
    refused("FLOAT with an underscore", stream(b"F1_0\n")),
    refused("STRING without quotes", stream(b"Sabc\n")),
    refused("STRING with one quote", stream(b"S'\n")),
    refused("STRING of a code's escape", stream(b"S'\\xg'\n")),
    refused("STRING of an unknown escape", stream(b"S'\\q'\n")),
    refused("UNICODE that is cut", stream(b"V\\u12\n")),
    refused("a text that is no UTF-8", stream(text(b"\xff"))),
    refused("NEXT_BUFFER", stream(b"\x97", protocol=5), "UnsupportedError"),
    refused("READONLY_BUFFER", stream(NONE, b"\x98", protocol=5), "UnsupportedError"),
    refused("NEWOBJ_EX of odd arguments", stream(global_name("a", "b"), b"]}\x92", protocol=4)),
    refused("OBJ of nothing", stream(b"(o")),
    refused("a frame within a frame", stream(b"\x95" + U64(11) + b"\x95" + U64(1), NONE, protocol=4)),
    refused("a frame that does not end with STOP", stream(b"\x95" + U64(3), NONE, protocol=4) + NONE),
    refused("a text across the end of a frame", stream(b"\x95" + U64(3), text("abc"), protocol=4)),
    refused("a line across the end of a frame", stream(b"\x95" + U64(3), b"I123\n", protocol=4)),
    read("a memo number of 2^32 - 1", stream(NONE, b"r" + U32(2**32 - 1) + b"0j" + U32(2**32 - 1)), "None"),
    read("a memo number of 2^28, as text", stream(NONE, b"p268435456\n0g268435456\n"), "None"),
    read("a memo number of 1,000 digits", stream(NONE, b"p" + b"9" * 1000 + b"\n0g" + b"9" * 1000 + b"\n"), None),
)

N = 200_000
"""Times that a step is repeated: large enough to see what grows faster than the file."""

DEEP_TUPLE = b")" + b"\x85" * N
COLLIDING = [number(k * (2**61 - 1)) for k in range(60_000)]
"""Integers of one hash."""

CYCLES = (
    refused("a list that holds itself", stream(b"]" + put(0) + get(0) + b"a")),
    refused("a dict that holds itself", stream(b"}" + put(0) + NONE + get(0) + b"s")),
    refused("a list that holds itself through a tuple", stream(b"]" + put(0) + get(0) + b"\x85a")),
    refused("a deque that holds itself", stream(call(global_name("collections", "deque")) + put(0) + get(0) + b"a")),
    refused(
        "a metadata that holds its dict",
        stream(call(global_name("collections", "OrderedDict")) + put(0) + dict_of(text("_metadata"), get(0)) + b"b"),
    ),
    inert(
        "an object that holds itself",
        stream(call(global_name("a", "B")) + put(0) + dict_of(text("x"), get(0)) + b"b"),
        "a.B",
    ),
    inert(
        "an object that holds itself through a list",
        stream(call(global_name("a", "B")) + put(0) + list_of(get(0), get(0)) + b"b"),
        "a.B",
    ),
    inert("an object that is its own item", stream(call(global_name("a", "B")) + put(0) + get(0) + b"a"), "a.B"),
    refused(
        "a list that holds itself within an object",
        stream(global_name("a", "B") + b"]" + put(0) + get(0) + b"a" + b"\x85R"),
    ),
)

NESTED = (
    refused("lists in lists", stream(b"]" * N + b"a" * (N - 1)), LIMIT),
    refused("tuples in tuples", stream(DEEP_TUPLE), LIMIT),
    refused("dicts in dicts", stream(repeated(b"}" + NONE + get(255) + b"s", N)), LIMIT),
    refused("marks in marks", stream(b"(" * N), "PickleError"),
    refused("frozensets in frozensets", stream(repeated(b"(" + get(255) + b"\x91", N), protocol=4), LIMIT),
    refused(
        "deques in deques",
        stream(names(("collections", "deque")), repeated(get(0) + get(255) + b"\x85\x85R", N)),
        LIMIT,
    ),
    refused(
        "defaultdicts in defaultdicts",
        stream(names(("collections", "defaultdict")), repeated(get(0) + b")R" + NONE + get(255) + b"s", N)),
        LIMIT,
    ),
    refused(
        "deques in deques, by APPEND",
        stream(names(("collections", "deque")), repeated(get(0) + b")R" + get(255) + b"a", N)),
        LIMIT,
    ),
    refused(
        "OrderedDicts in OrderedDicts",
        stream(names(("collections", "OrderedDict")), repeated(get(0) + b")R" + NONE + get(255) + b"s", N)),
        LIMIT,
    ),
    refused(
        "Counters in Counters",
        stream(names(("collections", "Counter")), repeated(get(0) + b")R" + NONE + get(255) + b"s", N)),
        LIMIT,
    ),
    refused(
        "namespaces in namespaces",
        stream(names(("argparse", "Namespace")), repeated(get(0) + b")R}" + text("a") + get(255) + b"sb", N)),
        LIMIT,
    ),
    refused(
        "parameters in the states of parameters",
        stream(
            tensor() + put(9) + b"0",
            names(("torch._utils", "_rebuild_parameter_with_state")),
            repeated(get(0) + tuple_of(get(9), b"\x88", NONE, get(255)) + b"R", N),
        ),
        LIMIT,
    ),
    inert("objects in objects", stream(names(("a", "B")), repeated(get(0) + get(255) + b"\x85R", N)), "a.B"),
    inert(
        "objects in the states of objects",
        stream(names(("a", "B")), repeated(get(0) + b")R" + get(255) + b"b", N)),
        "a.B",
    ),
    refused("a deep tuple as a key", stream(b"}" + DEEP_TUPLE + NONE + b"s"), LIMIT),
    refused("a deep tuple as a member", stream(b"\x8f(" + DEEP_TUPLE + b"\x90", protocol=4), LIMIT),
    refused("a deep tuple as an id", stream(DEEP_TUPLE + b"Q")),
    refused("a deep tuple as a name", stream(DEEP_TUPLE + text("x") + b"\x93", protocol=4)),
)

SHARED = (
    refused("a doubled tuple", stream(DOUBLED), LIMIT),
    refused("a doubled tuple as a key", stream(b"}" + DOUBLED + NONE + b"s"), LIMIT),
    refused("a doubled tuple as a member", stream(b"(" + DOUBLED + b"\x91", protocol=4), LIMIT),
    refused("a doubled list", stream(repeated(list_of(get(255), get(255)), 60, start=b"]")), LIMIT),
    refused(
        "a doubled dict", stream(repeated(dict_of(text("a"), get(255), text("b"), get(255)), 60, start=b"}")), LIMIT
    ),
    refused(
        "doubled frozensets",
        stream(
            repeated(b"(" + tuple_of(number(1), get(255)) + tuple_of(number(2), get(255)) + b"\x91", 60), protocol=4
        ),
        LIMIT,
    ),
    refused("a doubled tuple in an object", stream(global_name("a", "B") + DOUBLED + b"\x85R"), LIMIT),
    inert(
        "objects that hold objects twice",
        stream(names(("a", "B")), repeated(get(0) + get(255) + b"2\x86R", 60)),
        "a.B",
    ),
    refused(
        "a hundred million shared numbers",
        stream(list_of(NONE * 10_000) + put(0) + b"0" + list_of(get(0) * 10_000)),
        LIMIT,
    ),
)

KEYS = (
    refused("60,000 integers with one hash", stream(dict_of(*(key + NONE for key in COLLIDING))), LIMIT),
    refused("60,000 tuples with one hash", stream(dict_of(*(key + b"\x85" + NONE for key in COLLIDING))), LIMIT),
    refused("60,000 members with one hash", stream(b"\x8f(" + b"".join(COLLIDING) + b"\x90", protocol=4), LIMIT),
    refused(
        "60,000 integers with one hash, one by one", stream(b"}", *(key + NONE + b"s" for key in COLLIDING)), LIMIT
    ),
    refused(
        "60,000 integers with one hash, in an object",
        stream(call(global_name("a", "B")), b"(", *(key + NONE for key in COLLIDING), b"u"),
        LIMIT,
    ),
    refused(
        "a set of 60,000 integers with one hash",
        stream(call(global_name("builtins", "set"), list_of(*COLLIDING))),
        LIMIT,
    ),
    refused(
        "50,000 integers that were chosen",
        stream(dict_of(*(number(2**59 + k * 2**18) + NONE for k in range(50_000)))),
        LIMIT,
    ),
    refused(
        "floats with one hash",
        stream(b"}(" + b"".join(real(float(2**61) * 2.0 ** (61 * k)) + NONE for k in range(-15, 15)) * 3 + b"u"),
        "PickleError",
        LIMIT,
    ),
    refused(
        "one long key for 20,000 dicts",
        stream(b"(", tuple_of(NONE * 990), put(0), (b"}" + get(0) + NONE + b"s") * 20_000, b"l"),
        LIMIT,
    ),
)

TEXT = b"X" + U32(10**6) + b"a" * 10**6
COPIES = (
    refused(
        "one text, encoded 2,000 times",
        stream(
            names(("_codecs", "encode")),
            b"(" + TEXT + text("latin1") + b"\x86" + put(1) + b"0",
            (get(0) + get(1) + b"R") * 2000,
            b"l",
        ),
        LIMIT,
    ),
    refused(
        "one list, copied 2,000 times",
        stream(
            names(("collections", "deque")),
            b"(" + list_of(NONE * 100_000) + b"\x85" + put(1) + b"0",
            (get(0) + get(1) + b"R") * 2000,
            b"l",
        ),
        LIMIT,
    ),
    refused(
        "one dict, copied 20,000 times",
        stream(
            names(("argparse", "Namespace")),
            b"(" + dict_of(*(text(f"k{n}") + NONE for n in range(5000))) + put(1) + b"0",
            (get(0) + b")R" + get(1) + b"b") * 20_000,
            b"l",
        ),
        LIMIT,
    ),
    refused(
        "one path, taken apart 1,000 times and dropped",
        stream(
            names(("pathlib", "Path")),
            text(b"a/" * 200_000) + b"\x85" + put(1) + b"0",
            (get(0) + get(1) + b"R0") * 1000,
            NONE,
        ),
        LIMIT,
    ),
    refused(
        "one bytes object, copied 2,000 times",
        stream(
            names(("builtins", "bytearray")),
            b"(" + b"B" + U32(10**6) + bytes(10**6) + b"\x85" + put(1) + b"0",
            (get(0) + get(1) + b"R") * 2000,
            b"l",
            protocol=3,
        ),
        LIMIT,
    ),
)

MANY = (
    refused(
        "one dict of 20,000 items, 20,000 times",
        stream(dict_of(*(number(n) + NONE for n in range(20_000))) + put(1) + b"0" + list_of(get(1) * 20_000)),
        LIMIT,
    ),
    refused(
        "one dict, copied 3,000 times into tensors of a subclass",
        stream(
            names(
                ("torch._tensor", "_rebuild_from_type_v2"),
                ("torch.nested._internal.nested_tensor", "_rebuild_njt"),
                ("torch", "Tensor"),
            ),
            dict_of(text("values"), tensor(), text("offsets"), tensor(), *(text(f"k{n}") + NONE for n in range(5000)))
            + b"\x85"
            + put(9)
            + b"0",
            list_of((get(0) + tuple_of(get(1), get(2), get(9), b"}") + b"R") * 3000),
        ),
        LIMIT,
    ),
    read("a text of 2 MB in quotes", b"S'" + b"a" * 2_000_000 + b"'\n.", None),
    read("30,000 sets of one", stream(list_of((b"\x8f(" + NONE + b"\x90") * 30_000), protocol=4), None),
    read("300,000 empty lists", stream(list_of(b"]" * 300_000)), None),
    refused("5,000,000 empty sets", stream(list_of(b"\x8f" * 5_000_000), protocol=4), LIMIT),
    read("a dict of 100,000 integers", stream(dict_of(*(number(n) + NONE for n in range(100_000)))), None),
    refused(
        "1,000 objects that share a list of 9,000",
        stream(
            names(("a", "B")), list_of(NONE * 9000), b"\x85" + put(1) + b"0", list_of((get(0) + get(1) + b"R") * 1000)
        ),
        "LimitError",
    ),
    read("an integer of 1,024 bytes", stream(number(2**8190)), None),
)

STREAMS: tuple[Hostile, ...] = (*LENGTHS, *BROKEN, *CYCLES, *NESTED, *SHARED, *KEYS, *COPIES, *MANY)
