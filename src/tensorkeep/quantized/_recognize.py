"""Quantized tensors from headers and configurations, and what is wrong with them. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Final

from tensorkeep.errors import LimitError, UnsupportedError
from tensorkeep.formats.gguf import GGML_TYPES_BY_NAME
from tensorkeep.quantized._activations import examine_activations
from tensorkeep.quantized._config import QuantConfig
from tensorkeep.quantized._declared import examine_sizes
from tensorkeep.quantized._method import examine_method
from tensorkeep.quantized._record import (
    ContradictionError,
    Headers,
    LayoutFinding,
    Layouts,
    QuantizedTensor,
    Stored,
)
from tensorkeep.quantized._settings import Settings, kind_of, module_of
from tensorkeep.quantized.families import BY_DTYPE, BY_ENDING, Layout

_ENDINGS: Final = tuple(BY_ENDING)
_find_ending = re.compile("|".join(f"{re.escape(ending)}$" for ending in BY_ENDING)).search
_find_digits = re.compile(r"\d+").search

_ORPHANS: Final = {
    ".qzeros": (".qweight",),
    ".weight_scale": (".weight", ".weight_packed"),
    ".weight_scale_inv": (".weight",),
    ".weight_scale_2": (".weight",),
    ".weight_global_scale": (".weight_packed", ".weight"),
    ".absmax": (".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4"),
}
"""How names of parts end, and what must be there too: one of these."""

_ORPHANED: Final = tuple(_ORPHANS)
_find_orphan = re.compile("|".join(f"{re.escape(ending)}$" for ending in _ORPHANS)).search

_INPUT_ROLES: Final = frozenset(("input_scale", "input_zeros"))


def recognize(headers: Headers, config: QuantConfig, notes: Mapping[str, Any]) -> Layouts:
    """Return the quantized tensors, and what is wrong."""
    tensors: dict[str, QuantizedTensor] = {}
    broken: dict[str, LayoutFinding] = {}
    findings: list[LayoutFinding] = []
    last_parts = frozenset(name.rpartition(".")[2] for name in headers)
    settings = _settings(config, notes, last_parts, findings)
    taken: set[str] = set()
    for stored, one in headers.items():
        if stored in taken:
            continue
        try:
            found = _recognized(stored, one, headers, settings)
        except ContradictionError as error:
            name = error.finding.tensor or stored
            broken.setdefault(name, error.finding)
            taken.update(part for part in error.parts.values() if part != name)
            continue
        except LimitError as error:
            findings.append(LayoutFinding("unsupported", error.message, expected=error.expected))
            plain = QuantConfig(config.method, config.format, config.version, config.bits)
            settings = Settings(plain, notes, last_parts)
            continue
        if found is not None:
            tensors[found.name] = found
            taken.update(found.parts.values())
    broken = {name: finding for name, finding in broken.items() if name not in tensors and name not in taken}
    taken |= broken.keys()
    findings += broken.values()
    findings += _orphans(headers, taken)
    try:
        findings += _compared(headers, tensors, taken, settings)
    except LimitError as error:
        findings.append(LayoutFinding("unsupported", error.message, expected=error.expected, is_error=False))
    leftovers = frozenset(
        part for tensor in tensors.values() for role, part in tensor.parts.items() if role in _INPUT_ROLES
    )
    return Layouts(config.method, tensors, broken, tuple(findings), leftovers)


def _compared(
    headers: Headers, tensors: Mapping[str, QuantizedTensor], taken: set[str], settings: Settings
) -> Iterator[LayoutFinding]:
    """Compare quantized tensors with the configuration, and with those in other layers."""
    yield from settings.overlaps()
    yield from examine_sizes(tensors, settings)
    yield from examine_activations(headers, tensors, settings)
    yield from examine_method(tensors, settings.config)
    yield from _ignored(tensors, settings)
    yield from _left_plain(headers, tensors, taken, settings)


def _settings(
    config: QuantConfig, notes: Mapping[str, Any], last_parts: frozenset[str], findings: list[LayoutFinding]
) -> Settings:
    try:
        return Settings(config, notes, last_parts)
    except (UnsupportedError, LimitError) as error:
        findings.append(
            LayoutFinding("unsupported", error.message, expected=error.expected, found=error.found, is_error=False)
        )
        plain = QuantConfig(
            config.method, config.format, config.version, config.bits, config.group_size, config.block
        )
        return Settings(plain, notes, last_parts)


def _recognized(stored: str, one: Stored, headers: Headers, settings: Settings) -> QuantizedTensor | None:
    ending = _find_ending(stored) if stored.endswith(_ENDINGS) else None
    if ending is not None:
        asked: tuple[Layout, ...] = BY_ENDING[ending.group()]
        for layout in asked:
            found = layout.recognize(stored[: ending.start()], headers, settings)
            if found is not None:
                return found
    for layout in BY_DTYPE.get(one.dtype, ()):
        found = layout.recognize(stored, headers, settings)
        if found is not None:
            return found
    return _in_ggmls_blocks(stored, one)


def _in_ggmls_blocks(name: str, one: Stored) -> QuantizedTensor | None:
    type_ = GGML_TYPES_BY_NAME.get(one.dtype)
    if type_ is None or not type_.is_quantized:
        return None
    digits = _find_digits(type_.name)
    block = (*(1,) * (len(one.shape) - 1), type_.n_per_block)
    return QuantizedTensor(
        name, "gguf", one.shape, int(digits.group()) if digits else 8, type_.name, block, {"data": name}
    )


def _orphans(headers: Headers, taken: set[str]) -> Iterator[LayoutFinding]:
    """Give the parts of quantized tensors whose numbers are missing."""
    for name in headers:
        ending = _find_orphan(name) if name not in taken and name.endswith(_ORPHANED) else None
        if ending is None:
            continue
        needed = [name[: ending.start()] + other for other in _ORPHANS[ending.group()]]
        if not any(other in headers for other in needed):
            expected = " or ".join(f"`{other}`" for other in needed)
            yield LayoutFinding(
                "missing", f"`{name}` is a part of a tensor that is not there", name, expected=expected
            )


def _ignored(tensors: Mapping[str, QuantizedTensor], settings: Settings) -> Iterator[LayoutFinding]:
    """Give quantized tensors of modules that the configuration leaves out."""
    for name in tensors:
        pattern = settings.ignores(module_of(name))
        if pattern is not None:
            yield LayoutFinding(
                "ignored",
                f"tensor `{name}` is quantized, although the configuration leaves its module out",
                name,
                found=repr(pattern),
                is_error=False,
            )


def _left_plain(
    headers: Headers, tensors: Mapping[str, QuantizedTensor], taken: set[str], settings: Settings
) -> Iterator[LayoutFinding]:
    """Give weights that are plain, although the same module is quantized in most other layers."""
    plain = [name for name, one in headers.items() if name not in taken and prod(one.shape) > 1]
    if not (plain and tensors):
        return
    n_plain = Counter(kind_of(name) for name in plain)
    kinds = Counter(kind_of(name) for name in tensors)
    plain = [name for name in plain if kind_of(name) in kinds]
    for name in plain:
        kind = kind_of(name)
        if n_plain[kind] <= kinds[kind] and settings.ignores(module_of(name)) is None:
            yield _plain(name, headers[name])


def _plain(name: str, one: Stored) -> LayoutFinding:
    if one.dtype in BY_DTYPE:
        return LayoutFinding(
            "missing", f"tensor `{name}` has no scales, which most other layers have", name, found=str(one)
        )
    return LayoutFinding(
        "ignored",
        f"tensor `{name}` is not quantized, and the configuration does not leave its module out",
        name,
        expected="quantized numbers, as in most other layers",
        found=str(one),
        is_error=False,
    )
