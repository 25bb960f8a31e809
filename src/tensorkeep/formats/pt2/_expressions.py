"""Texts in a program that torch evaluates as Python: whether they only compute numbers. Pure.

torch hands sizes to `sympy.sympify`, which evaluates any Python, and runs guards as they are. So a text passes only
if it consists of numbers, operators, symbols, and calls of functions that compute.
"""

from __future__ import annotations

import re
from typing import Final

_FUNCTIONS: Final = (
    *("Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Max", "Min", "Mod", "Abs", "And", "Or", "Not"),
    *("Eq", "Ne", "Equality", "Unequality", "LessThan", "StrictLessThan", "GreaterThan", "StrictGreaterThan"),
    *("floor", "ceiling", "Piecewise", "ExprCondPair", "ITE", "FloorDiv", "ModularIndexing", "Where", "PythonMod"),
    *("CleanDiv", "CeilToInt", "FloorToInt", "CeilDiv", "LShift", "RShift", "PowByNatural", "FloatPow"),
    *("FloatTrueDiv", "IntTrueDiv", "IsNonOverlappingAndDenseIndicator", "TruncToFloat", "TruncToInt", "RoundToInt"),
    *("RoundDecimal", "ToFloat", "Identity", "Int", "NegativeInfinity", "Infinity", "int_oo", "BooleanTrue"),
    *("OpaqueUnaryFn_sqrt", "OpaqueUnaryFn_exp", "OpaqueUnaryFn_log2"),
)
_NUMBER: Final = r"\d+(?:\.\d*)?(?:e[+-]?\d+)?"
_OPERATORS: Final = r"[-+*/%(),=<>!&|~ ]"
_SYMBOL: Final = r"(?![A-Za-z_0-9]*__)[A-Za-z_][A-Za-z_0-9]*(?![A-Za-z_0-9]*[ ]*\()"
"""A name that is not called, and has no two underscores in a row."""

_is_expression = re.compile(
    rf"(?:{_NUMBER}|(?:{'|'.join(_FUNCTIONS)})\(|{_SYMBOL}|'[A-Za-z0-9_.+-]*'|{_OPERATORS})*+"
).fullmatch
_LOCAL: Final = r"L\['[A-Za-z_0-9]+'\](?:\[(?:\d+|'[A-Za-z_0-9]+')\])*(?:\.(?:size|stride|storage_offset|dim)\(\))?"
_is_guard = re.compile(
    rf"(?:{_LOCAL}|\[\d+\]|{_NUMBER}|(?:and|or|not|is|in|None|True|False)\b|{_OPERATORS})*+"
).fullmatch
_is_name = re.compile(r"[\w.+:/<> -]*").fullmatch
_MAX_LENGTH: Final = 10_000


def is_expression(text: str) -> bool:
    """Say whether a size only computes numbers."""
    return len(text) <= _MAX_LENGTH and _is_expression(text) is not None


def is_guard(text: str) -> bool:
    """Say whether a guard only compares sizes of inputs."""
    return len(text) <= _MAX_LENGTH and _is_guard(text) is not None


def is_name(text: str) -> bool:
    """Say whether a text that may get into the code of a graph is a name, or nothing that could do anything."""
    return len(text) <= _MAX_LENGTH and _is_name(text) is not None
