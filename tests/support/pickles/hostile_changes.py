"""Pickles that change an object: its state, its items, its class."""

from __future__ import annotations

from tests.support.pickles.assembler import (
    HOOKS,
    NONE,
    build,
    call,
    dict_of,
    global_name,
    new_object,
    number,
    storage,
    stream,
    tensor,
    text,
    tuple_of,
)
from tests.support.pickles.hostile_case import Hostile, inert, refused
from tests.support.pickles.hostile_case import read as plain

__all__ = ["CHANGES"]

TENSOR = global_name("torch", "Tensor")
FUNCTION = global_name("json", "dumps")
CHANGES: tuple[Hostile, ...] = (
    refused("BUILD of a function", stream(build(FUNCTION, dict_of(text("__code__"), NONE)))),
    refused("BUILD of a known class", stream(build(TENSOR, dict_of(text("__setstate__"), FUNCTION)))),
    refused(
        "BUILD of a function, by slots", stream(build(FUNCTION, b"N" + dict_of(text("__code__"), NONE) + b"\x86"))
    ),
    refused("BUILD of a tensor", stream(build(tensor(), dict_of(text("__class__"), FUNCTION)))),
    refused(
        "BUILD of a tensor's shape",
        stream(build(tensor(), b"N" + dict_of(text("shape"), tuple_of(number(9))) + b"\x86")),
    ),
    refused("BUILD of a storage", stream(build(storage(), dict_of(text("n_elements"), number(9))))),
    refused("BUILD of a list", stream(build(b"]", b"}"))),
    refused("BUILD of a dict", stream(build(b"}", dict_of(text("a"), NONE)))),
    refused("BUILD of a text", stream(build(text("a"), b"}"))),
    refused("BUILD of a label", stream(build(global_name("torch", "float32"), dict_of(text("kind"), text("x"))))),
    refused("BUILD of a set", stream(build(b"\x8f", b"}"), protocol=4)),
    refused("BUILD of an OrderedDict with methods", stream(build(HOOKS, dict_of(text("__class__"), FUNCTION)))),
    refused(
        "BUILD of an OrderedDict by slots", stream(build(HOOKS, b"N" + dict_of(text("items"), FUNCTION) + b"\x86"))
    ),
    refused(
        "BUILD of a namespace whose names are no texts",
        stream(build(call(global_name("argparse", "Namespace")), dict_of(number(1), NONE))),
    ),
    plain(
        "BUILD of a namespace with a method's name",
        stream(build(call(global_name("argparse", "Namespace")), dict_of(text("__class__"), NONE))),
        "{'__class__': None}",
    ),
    inert(
        "BUILD of an unknown object",
        stream(build(new_object(global_name("a", "B")), dict_of(text("__class__"), FUNCTION))),
        "a.B",
        "json.dumps",
    ),
    refused(
        "BUILD of an unknown object twice",
        stream(build(build(new_object(global_name("a", "B")), dict_of(text("x"), NONE)), dict_of(text("y"), NONE))),
    ),
    refused(
        "a setstate that is called",
        stream(call(global_name("a", "B.__setstate__"), FUNCTION)),
        "UnsafeError",
        unknowns=("a.B.__setstate__", "json.dumps"),
    ),
    refused("APPEND to a dict", stream(b"}" + NONE + b"a")),
    refused("APPEND to a set", stream(b"\x8f" + NONE + b"a", protocol=4)),
    refused("APPEND to a tensor", stream(tensor() + NONE + b"a")),
    refused("APPEND to a function", stream(FUNCTION + NONE + b"a")),
    refused("APPENDS to a text", stream(text("a") + b"(" + NONE + b"e")),
    refused("APPENDS to a tuple", stream(b")(" + NONE + b"e")),
    refused("ADDITEMS to a list", stream(b"](" + NONE + b"\x90", protocol=4)),
    refused("ADDITEMS to a frozenset", stream(b"((\x91" + NONE + b"\x90", protocol=4)),
    refused("SETITEM of a list", stream(b"]" + number(0) + NONE + b"s")),
    refused("SETITEM of a bytearray", stream(b"\x96" + bytes(8) + number(0) + NONE + b"s", protocol=5)),
    refused("SETITEMS of a class", stream(TENSOR + b"(" + text("__setstate__") + FUNCTION + b"u")),
    refused("SETITEMS of a tensor", stream(tensor() + b"(" + number(0) + FUNCTION + b"u")),
    inert(
        "APPENDS to an unknown object",
        stream(new_object(global_name("a", "B")) + b"(" + FUNCTION + b"e"),
        "a.B",
        "json.dumps",
    ),
    inert(
        "SETITEMS of an unknown object",
        stream(new_object(global_name("a", "B")) + b"(" + FUNCTION + NONE + b"u"),
        "a.B",
        "json.dumps",
    ),
    refused("items of two kinds", stream(new_object(global_name("a", "B")) + NONE + b"a" + number(0) + NONE + b"s")),
)
