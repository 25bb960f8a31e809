"""What there is besides headers: configurations beside a checkpoint, and small tensors that say shapes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from math import prod
from typing import Any, Final

import msgspec

from tensorkeep.collector import PausedCollector
from tensorkeep.dtypes import HOLDS_QUANTIZED
from tensorkeep.errors import FormatError, SourceMissingError, TransportError
from tensorkeep.quantized._config import NO_CONFIG, QuantConfig, parse_config
from tensorkeep.quantized._recognize import recognize
from tensorkeep.quantized._record import HasHeader, Headers, Layouts, Stored
from tensorkeep.tensors import LazyTensors, TensorView, load_together
from tensorkeep.transport import is_remote

_CONFIG: Final = "config.json"
_OTHER_CONFIG: Final = "hf_quant_config.json"
_MAX_CONFIG_NBYTES: Final = 2**24
"""Bytes of a configuration; the largest list each of 60,000 layers."""

_MAX_NOTE_NBYTES: Final = 2**14
"""Bytes of a tensor that says the shape of another; quant states have about 200."""

_UNREADABLE: Final = "The numbers depend on it; tensorkeep.quantized.dequantize(file, config=...) takes its content"
_MARK: Final = "bitsandbytes__"


def layouts(tensors: LazyTensors, config: Mapping[str, Any] | None = None) -> Layouts:
    """Say which tensors of a checkpoint are quantized, how, and what is missing or contradicts itself.

        with tensorkeep.open("model/") as file:
            found = tensorkeep.quantized.layouts(file)
            found.tensors["model.layers.0.mlp.up_proj.weight"].scheme  # "int4, groups of 128, zero points"
            found.findings

    It knows GPTQ, AWQ (GEMM), compressed-tensors, ModelOpt (NVFP4, FP8), DeepSeek's blocks of F8, torchao's classes,
    bitsandbytes, MXFP4 and ggml's blocks. It reads headers, `config.json` and `hf_quant_config.json` beside the
    checkpoint, and small tensors that say shapes.

    Args:
        tensors: An open file, checkpoint or view.
        config: The content of `config.json`; None reads it beside the checkpoint.

    Returns:
        The quantized tensors by the names that they have once they are dequantized, and the findings.

    Raises:
        FormatError: If a configuration is no JSON object, or too large.
        TransportError: If a file cannot be read; a configuration may be missing, but must be readable if it is there.
    """
    return layouts_from(tensors, tensors, config)


def layouts_from(
    headers: Mapping[str, HasHeader], tensors: LazyTensors, config: Mapping[str, Any] | None = None
) -> Layouts:
    """Do as `layouts`, with headers that are known already: making lazy tensors of all takes longer than the rest."""
    stored = {name: Stored(header.dtype, header.shape) for name, header in headers.items()}
    known, notes = config_of(tensors, stored, config), _notes(tensors, stored)
    with PausedCollector():
        return recognize(stored, known, notes)


def config_of(tensors: LazyTensors, headers: Headers, config: Mapping[str, Any] | None) -> QuantConfig:
    """Return what a configuration says: one that is given, or the one beside the checkpoint."""
    if config is not None:
        return parse_config(config, {})
    if not tensors.path or (is_remote(tensors.path) and not _may_be_quantized(headers)):
        return NO_CONFIG
    parsed = parse_config(_config_beside(tensors, _CONFIG), {})
    return parsed if parsed != NO_CONFIG else parse_config({}, _config_beside(tensors, _OTHER_CONFIG))


def read_config(path: str, name: str) -> dict[str, Any]:
    """Return a configuration beside a checkpoint, which may be missing."""
    return _config_beside(TensorView({}, path=path), name)


def _config_beside(tensors: LazyTensors, name: str) -> dict[str, Any]:
    """Return a configuration, which may be missing; with a policy, only one that was signed."""
    try:
        text = tensors.companion(name, max_nbytes=_MAX_CONFIG_NBYTES)
    except SourceMissingError:
        return {}
    except TransportError as error:
        raise error.with_fields(hint=_UNREADABLE) from None
    try:
        config: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"`{name}` is not a JSON object", path=tensors.path, found=str(error)) from None
    return config


def _may_be_quantized(headers: Headers) -> bool:
    """Say whether asking a server for configurations is worth it."""
    return any(one.dtype in HOLDS_QUANTIZED for one in headers.values())


def _notes(tensors: LazyTensors, headers: Headers) -> dict[str, Any]:
    """Read the small tensors that say shapes: quant states as JSON, others as numbers; and metadata of torchao."""
    wanted = [
        name
        for name, one in headers.items()
        if (
            (one.dtype == "U8" and (_MARK in name or name.endswith(".weight_format")))
            or (one.dtype in {"I32", "I64"} and name.endswith("_shape") and f"{name[:-6]}_packed" in headers)
        )
        and prod(one.shape) * one.itemsize <= _MAX_NOTE_NBYTES
    ]
    notes: dict[str, Any] = {}
    if wanted:
        small = {name: tensors[name].with_framework("numpy") for name in wanted}
        for name, array in load_together(small).items():
            notes[name] = _state(bytes(array.reshape(-1))) if _MARK in name else array.reshape(-1).tolist()
    if any(name.endswith("_qdata") for name in headers):
        notes |= {f"metadata {name}": text for name, text in tensors.metadata.items()}
    return notes


def _state(raw: bytes) -> Any:
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(raw)
    return None
