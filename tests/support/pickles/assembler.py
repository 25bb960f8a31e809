"""A tiny assembler: pickles put together opcode by opcode, as no pickler would write them.

Each function returns bytes that leave one value on the stack, unless it says otherwise.
"""

from __future__ import annotations

import struct

__all__ = [
    "DOUBLED",
    "HOOKS",
    "build",
    "call",
    "dict_of",
    "get",
    "global_name",
    "list_of",
    "names",
    "new_object",
    "new_object_ex",
    "number",
    "put",
    "real",
    "repeated",
    "short_bytes",
    "stack_name",
    "storage",
    "stream",
    "tensor",
    "text",
    "tuple_of",
]

NONE, TRUE, FALSE = b"N", b"\x88", b"\x89"

DOUBLED = b")" + b"2\x86" * 60
"""A tuple of itself twice, sixty times over: 121 bytes, of which no hash, text or walk ever ends."""


def stream(*parts: bytes, protocol: int = 2) -> bytes:
    """Return a whole pickle, from PROTO to STOP."""
    return b"\x80" + bytes([protocol]) + b"".join(parts) + b"."


def text(value: str | bytes) -> bytes:
    """Push a text; bytes are taken as they are."""
    encoded = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def short_bytes(value: bytes) -> bytes:
    """Push up to 255 bytes, as protocol 3 does."""
    return b"C" + bytes([len(value)]) + value


def number(value: int) -> bytes:
    """Push an integer in the shortest way."""
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    nbytes = value.bit_length() // 8 + 1
    length = b"\x8a" + bytes([nbytes]) if nbytes < 256 else b"\x8b" + struct.pack("<I", nbytes)
    return length + value.to_bytes(nbytes, "little", signed=True)


def real(value: float) -> bytes:
    """Push a floating-point number."""
    return b"G" + struct.pack(">d", value)


def global_name(module: str | bytes, name: str | bytes) -> bytes:
    """Push what a name stands for, by the opcode of protocols 0 to 3."""
    lines = [part.encode() if isinstance(part, str) else part for part in (module, name)]
    return b"c" + lines[0] + b"\n" + lines[1] + b"\n"


def stack_name(module: str | bytes, name: str | bytes) -> bytes:
    """Push what a name stands for, by the opcode of protocol 4."""
    return text(module) + text(name) + b"\x93"


def tuple_of(*parts: bytes) -> bytes:
    """Push a tuple."""
    return b"(" + b"".join(parts) + b"t"


def list_of(*parts: bytes) -> bytes:
    """Push a list."""
    return b"(" + b"".join(parts) + b"l"


def dict_of(*parts: bytes) -> bytes:
    """Push a dict of keys and values in turn."""
    return b"(" + b"".join(parts) + b"d"


def call(function: bytes, *args: bytes) -> bytes:
    """Push the result of a call, by REDUCE."""
    return function + tuple_of(*args) + b"R"


def new_object(cls: bytes, *args: bytes) -> bytes:
    """Push an object of a class, by NEWOBJ."""
    return cls + tuple_of(*args) + b"\x81"


def new_object_ex(cls: bytes, args: bytes, named: bytes) -> bytes:
    """Push an object of a class, made with named arguments, by NEWOBJ_EX."""
    return cls + args + named + b"\x92"


def build(target: bytes, state: bytes) -> bytes:
    """Push an object with its state set."""
    return target + state + b"b"


def put(place: int) -> bytes:
    """Keep the top of the stack under a number below 256."""
    return b"q" + bytes([place])


def get(place: int) -> bytes:
    """Push what was kept."""
    return b"h" + bytes([place])


def names(*pairs: tuple[str, str]) -> bytes:
    """Keep names in the memo from 0 on, and leave nothing on the stack."""
    return b"".join(global_name(*pair) + put(place) + b"0" for place, pair in enumerate(pairs))


def repeated(step: bytes, n: int, *, start: bytes = NONE) -> bytes:
    """Push a value that is made from one before it, n times: a step finds that one in the memo, as 255."""
    return start + (put(255) + b"0" + step) * n


HOOKS = call(global_name("collections", "OrderedDict"))


def storage(
    key: bytes | None = None,
    n_elements: bytes | None = None,
    *,
    cls: bytes | None = None,
    location: bytes | None = None,
    more: bytes = b"",
) -> bytes:
    """Push a storage; by default one of four float32 numbers, on the CPU, with key 0."""
    parts = (
        text("storage"),
        global_name("torch", "FloatStorage") if cls is None else cls,
        text("0") if key is None else key,
        text("cpu") if location is None else location,
        number(4) if n_elements is None else n_elements,
    )
    return tuple_of(*parts, more) + b"Q"


def tensor(
    shape: bytes | None = None,
    strides: bytes | None = None,
    *,
    offset: bytes | None = None,
    of: bytes | None = None,
    requires_grad: bytes = FALSE,
    hooks: bytes = HOOKS,
    more: bytes = b"",
) -> bytes:
    """Push a tensor; by default all of a storage of four numbers."""
    return call(
        global_name("torch._utils", "_rebuild_tensor_v2"),
        storage() if of is None else of,
        number(0) if offset is None else offset,
        tuple_of(number(4)) if shape is None else shape,
        tuple_of(number(1)) if strides is None else strides,
        requires_grad,
        hooks,
        more,
    )
