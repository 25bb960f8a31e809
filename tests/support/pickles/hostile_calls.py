"""Pickles that run something: a command by every opcode that can call or import."""

from __future__ import annotations

from tests.support.pickles.assembler import (
    HOOKS,
    NONE,
    TRUE,
    build,
    call,
    dict_of,
    get,
    global_name,
    list_of,
    new_object,
    new_object_ex,
    number,
    put,
    stack_name,
    storage,
    stream,
    tensor,
    text,
    tuple_of,
)
from tests.support.pickles.hostile_case import COMMAND, PAYLOAD, SYSTEM, Hostile, inert, refused

__all__ = ["CALLS"]

ALARM = "UnsafeError"
EVAL = global_name("builtins", "eval")
CODE = text(f"__import__('os').system('{COMMAND}')")
ATTRGETTER = global_name("operator", "attrgetter")
FROM_TYPE = global_name("torch._tensor", "_rebuild_from_type_v2")
REBUILD = global_name("torch._utils", "_rebuild_tensor_v2")
TENSOR = global_name("torch", "Tensor")
ARGUMENTS = tuple_of(storage(), number(0), tuple_of(number(4)), tuple_of(number(1)), b"\x89", HOOKS)


def alarmed(name: str, data: bytes, *unknowns: str, is_live: bool = True) -> Hostile:
    """A pickle that is refused by alarm, and inert without."""
    return refused(name, data, ALARM, unknowns=unknowns or ("os.system",), is_live=is_live)


def gone(name: str, data: bytes, *, is_live: bool = True) -> Hostile:
    """A pickle that is refused by alarm, and of whose calls nothing is left in a value."""
    return refused(name, data, ALARM, is_live=is_live)


COMMANDS = (
    alarmed("REDUCE", stream(call(SYSTEM, PAYLOAD))),
    alarmed("INST", b"(S'" + COMMAND.encode() + b"'\nios\nsystem\n."),
    alarmed(
        "OBJ",
        stream(b"(" + global_name("subprocess", "Popen") + list_of(text("touch"), text("payload-ran")) + b"o"),
        "subprocess.Popen",
    ),
    alarmed(
        "NEWOBJ", stream(new_object(global_name("subprocess", "Popen"), PAYLOAD)), "subprocess.Popen", is_live=False
    ),
    alarmed("NEWOBJ_EX", stream(new_object_ex(SYSTEM, tuple_of(PAYLOAD), b"}")), is_live=False),
    alarmed(
        "NEWOBJ_EX with named arguments",
        stream(new_object_ex(SYSTEM, b")", dict_of(text("command"), PAYLOAD))),
        is_live=False,
    ),
    alarmed("REDUCE of STACK_GLOBAL", stream(call(stack_name("os", "system"), PAYLOAD), protocol=4)),
    alarmed("the module behind os", stream(call(global_name("posix", "system"), PAYLOAD)), "posix.system"),
    alarmed("eval", stream(call(EVAL, CODE)), "builtins.eval"),
    alarmed("exec", stream(call(global_name("builtins", "exec"), CODE)), "builtins.exec"),
    alarmed("Python 2's eval", stream(call(global_name("__builtin__", "eval"), CODE)), "builtins.eval"),
    alarmed("Python 2's eval, off the stack", stream(call(stack_name("__builtin__", "eval"), CODE)), "builtins.eval"),
    alarmed(
        "Python 2's commands", stream(call(global_name("commands", "getoutput"), PAYLOAD)), "subprocess.getoutput"
    ),
    gone("a result that is dropped by POP", stream(call(SYSTEM, PAYLOAD) + b"0", b"}")),
    gone("a result that is dropped by POP_MARK", stream(b"(" + call(SYSTEM, PAYLOAD) + b"1", b"}")),
    gone("a result that is only kept in the memo", stream(call(SYSTEM, PAYLOAD) + put(1) + b"0", b"}")),
    gone("a call in front of data that break off", stream(call(SYSTEM, PAYLOAD))[:-1] + b"\xff"),
    alarmed(
        "a call in the arguments of a call",
        stream(call(global_name("builtins", "set"), list_of(call(SYSTEM, PAYLOAD)))),
    ),
    alarmed(
        "a name out of the memo, behind decoys",
        stream(
            text("os")
            + put(0)
            + text("system")
            + put(1)
            + b"00"
            + text("collections")
            + text("OrderedDict")
            + b"00"
            + call(get(0) + get(1) + b"\x93", PAYLOAD),
            protocol=4,
        ),
    ),
    alarmed(
        "a memo that is written over",
        stream(
            text("collections")
            + put(0)
            + b"0"
            + text("os")
            + put(0)
            + b"0"
            + text("system")
            + put(1)
            + b"0"
            + call(get(0) + get(1) + b"\x93", PAYLOAD),
            protocol=4,
        ),
    ),
    alarmed(
        "a protocol that changes in the middle", stream(b"\x80\x00", b"\x80\x05", call(SYSTEM, PAYLOAD), protocol=2)
    ),
    alarmed("a call within a key", stream(b"}" + call(SYSTEM, PAYLOAD) + NONE + b"s")),
    gone("a persistent id that calls", stream(call(SYSTEM, PAYLOAD) + b"Q")),
    gone("a call among the hooks of a tensor", stream(tensor(hooks=call(SYSTEM, PAYLOAD)))),
    gone("a call as the shape of a tensor", stream(tensor(call(SYSTEM, PAYLOAD)))),
)
"""Each would leave the marker, and is refused before anything else of it is looked at."""

CALLABLES = (
    alarmed(
        "a subclass of tensor that is built by os.system",
        stream(call(FROM_TYPE, SYSTEM, TENSOR, tuple_of(PAYLOAD), b"}")),
    ),
    alarmed(
        "a parameter of what os.system gives",
        stream(call(global_name("torch._utils", "_rebuild_parameter"), call(SYSTEM, PAYLOAD), TRUE, HOOKS)),
    ),
    alarmed(
        "a dict whose missing values os.system makes",
        stream(call(global_name("collections", "defaultdict"), SYSTEM)),
        is_live=False,
    ),
    gone("a storage whose class is os.system", stream(storage(cls=SYSTEM)), is_live=False),
    alarmed("a function that is only mentioned", stream(SYSTEM), is_live=False),
    alarmed("a function as a key", stream(dict_of(SYSTEM, NONE)), is_live=False),
    alarmed(
        "hidden in the state of another object",
        stream(build(new_object(global_name("a", "B")), dict_of(text("x"), SYSTEM))),
        is_live=False,
    ),
    refused(
        "a subclass of tensor that is built by itself",
        stream(call(FROM_TYPE, FROM_TYPE, TENSOR, tuple_of(REBUILD, TENSOR, ARGUMENTS, b"}"), b"}")),
    ),
    inert(
        "a subclass of tensor that is built by what encodes",
        stream(call(FROM_TYPE, global_name("_codecs", "encode"), TENSOR, tuple_of(text("a"), text("rot13")), b"}")),
        "_codecs.encode",
        "torch.Tensor",
        "torch._tensor._rebuild_from_type_v2",
    ),
    refused(
        "a subclass of tensor that is built by a class",
        stream(call(FROM_TYPE, TENSOR, TENSOR, tuple_of(number(10)), b"}")),
    ),
    refused("a subclass of tensor whose arguments are a list", stream(call(FROM_TYPE, REBUILD, TENSOR, b"]", b"}"))),
    refused(
        "codecs other than latin1: punycode",
        stream(call(global_name("_codecs", "encode"), text("a" * 1000), text("punycode"))),
    ),
    refused(
        "codecs other than latin1: a module of encodings",
        stream(call(global_name("_codecs", "encode"), text("a"), text("..os"))),
    ),
    refused(
        "codecs other than latin1: zlib",
        stream(call(global_name("_codecs", "encode"), text("a"), text("zlib_codec"))),
    ),
    inert("a call of a result", stream(call(call(global_name("a", "b")))), "a.b"),
    refused("a call of a text", stream(call(text("os.system"), PAYLOAD))),
    refused("a call of a list", stream(call(b"]", PAYLOAD))),
    refused("arguments that are a list", stream(SYSTEM.replace(b"os", b"oz") + list_of(PAYLOAD) + b"R")),
    refused("arguments that are a record", stream(global_name("a", "b") + global_name("a", "c") + b"R")),
    refused("a call of a dtype", stream(call(global_name("torch", "float32"), PAYLOAD))),
    refused("NEWOBJ of a function", stream(new_object(global_name("_codecs", "encode"), text("a"), text("latin1")))),
    refused(
        "NEWOBJ of what fills itself later", stream(new_object(global_name("builtins", "set"), list_of(number(1))))
    ),
    refused(
        "named arguments of a known class",
        stream(new_object_ex(global_name("collections", "Counter"), b")", dict_of(text("a"), number(1)))),
    ),
)

GADGETS = (
    alarmed(
        "dotted: os within another module",
        stream(call(stack_name("torch.serialization", "os.system"), PAYLOAD), protocol=4),
        "torch.serialization.os.system",
    ),
    alarmed(
        "dotted: through globals",
        stream(call(stack_name("collections", "namedtuple.__globals__.get"), text("x")), protocol=4),
        "collections.namedtuple.__globals__.get",
        is_live=False,
    ),
    alarmed(
        "dotted: through subclasses",
        stream(call(stack_name("builtins", "object.__subclasses__")), protocol=4),
        "builtins.object.__subclasses__",
        is_live=False,
    ),
    alarmed(
        "dotted: the members of a known class",
        stream(call(stack_name("torch", "Tensor.__init__.__globals__.__getitem__"), text("os")), protocol=4),
        "torch.Tensor.__init__.__globals__.__getitem__",
        is_live=False,
    ),
    alarmed(
        "dotted: endless",
        stream(stack_name("a", "b." * 4000 + "c"), protocol=4),
        "a." + "b." * 4000 + "c",
        is_live=False,
    ),
    alarmed("operator gadgets", stream(call(ATTRGETTER, text("system"))), "operator.attrgetter", is_live=False),
    inert(
        "getattr",
        stream(call(global_name("builtins", "getattr"), global_name("a", "b"), text("c"))),
        "a.b",
        "builtins.getattr",
    ),
    inert(
        "functools.partial",
        stream(call(global_name("functools", "partial"), global_name("a", "run"))),
        "a.run",
        "functools.partial",
    ),
    inert(
        "torch's pickle within a pickle",
        stream(call(global_name("torch.storage", "_load_from_bytes"), b"C\x03abc")),
        "torch.storage._load_from_bytes",
    ),
    alarmed(
        "numpy's loader",
        stream(call(global_name("numpy", "load"), text("x.npy"), NONE, TRUE)),
        "numpy.load",
        is_live=False,
    ),
    alarmed("torch's loader", stream(call(global_name("torch", "load"), text("x.pt"))), "torch.load", is_live=False),
    alarmed(
        "pickle's loader", stream(call(global_name("pickle", "loads"), b"C\x01.")), "pickle.loads", is_live=False
    ),
    alarmed(
        "numpy's own exec",
        stream(call(global_name("numpy.testing._private.utils", "runstring"), CODE, b"}")),
        "numpy.testing._private.utils.runstring",
    ),
    alarmed(
        "an import",
        stream(call(global_name("importlib", "import_module"), text("os"))),
        "importlib.import_module",
        is_live=False,
    ),
    inert("the allocation of gigabytes by a class", stream(call(TENSOR, number(2**40))), "torch.Tensor"),
    inert(
        "a storage class that is called",
        stream(call(global_name("torch", "FloatStorage"), number(2**40))),
        "torch.FloatStorage",
    ),
    refused(
        "the allocation of gigabytes by bytearray", stream(call(global_name("builtins", "bytearray"), number(2**40)))
    ),
    refused("the allocation of gigabytes by bytes", stream(call(global_name("builtins", "bytes"), number(2**40)))),
    inert(
        "the allocation of gigabytes by numpy",
        stream(call(global_name("numpy", "ndarray"), tuple_of(number(2**40)))),
        "numpy.ndarray",
    ),
    inert(
        "a class made of nothing",
        stream(call(global_name("builtins", "type"), text("A"), b")", b"}")),
        "builtins.type",
    ),
)

NAMES = (
    inert("a module in Cyrillic", stream(call(global_name("\u043es", "system"), PAYLOAD)), "\u043es.system"),
    inert(
        "a name in full-width letters",
        stream(call(global_name("os.path", "\uff4aoin"), PAYLOAD)),
        "os.path.\uff4aoin",
    ),
    inert("a name with NUL", stream(call(global_name("os\0", "x"), PAYLOAD)), "os\0.x"),
    inert("a name with a carriage return", stream(call(global_name("oz\r", "system\r"), PAYLOAD)), "oz\r.system\r"),
    inert("a name with a newline", stream(call(stack_name("oz\n", "x\ny"), PAYLOAD), protocol=4), "oz\n.x\ny"),
    inert(
        "a name with a lone surrogate", stream(call(stack_name("oz\ud800", "x"), PAYLOAD), protocol=4), "oz\ud800.x"
    ),
    inert(
        "a name with terminal escapes", stream(call(stack_name("oz", "\x1b[2J"), PAYLOAD), protocol=4), "oz.\x1b[2J"
    ),
    inert("empty names", stream(call(global_name("", ""), PAYLOAD)), "."),
    inert("a name with spaces", stream(call(global_name(" os", "system "), PAYLOAD)), " os.system "),
    alarmed(
        "an alarm with a lone surrogate",
        stream(stack_name("os", "system.\ud800"), protocol=4),
        "os.system.\ud800",
        is_live=False,
    ),
    alarmed(
        "an alarm with terminal escapes",
        stream(stack_name("os", "system.\x1b[2J"), protocol=4),
        "os.system.\x1b[2J",
        is_live=False,
    ),
    refused("a name that is no UTF-8", stream(global_name(b"\xff", "x"))),
    refused("a name that is too long", stream(global_name("a" * 20_000, "x")), "PickleError", "LimitError"),
    refused("a name off the stack that is too long", stream(stack_name("a" * 20_000, "x"), protocol=4), "LimitError"),
    refused("a name off the stack that is bytes", stream(b"C\x02os", text("system"), b"\x93", protocol=4)),
    refused("a name off the stack that is a list", stream(b"]", text("system"), b"\x93", protocol=4)),
    refused(
        "a name off the stack that is a label",
        stream(global_name("torch", "float32"), text("system"), b"\x93", protocol=4),
    ),
    refused("a name without its second line", b"\x80\x02cos\n", "PickleCutError"),
    refused("extension, 1 byte", stream(b"\x82\x01"), ALARM),
    refused("extension, 2 bytes", stream(b"\x83\x01\x00"), ALARM),
    refused("extension, 4 bytes", stream(b"\x84\x01\x00\x00\x00"), ALARM),
    refused("extension that is called", stream(call(b"\x82\xff", PAYLOAD)), ALARM),
)

CALLS = (*COMMANDS, *CALLABLES, *GADGETS, *NAMES)
