"""What `config.json` and `hf_quant_config.json` say of quantization. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

_SKIPPED_KEYS: Final = ("modules_to_not_convert", "llm_int8_skip_modules")
"""Lists of modules that are left as they are: each is a name, the end of one, or a part of one between dots."""

_MODELOPTS_FIXED: Final = frozenset(("FP8", "NVFP4"))
"""What ModelOpt calls methods in which the inputs of each module have a scale."""


class Group(msgspec.Struct, frozen=True):
    """Modules that are quantized alike.

    Attributes:
        name: Its name in the configuration.
        targets: Names, regular expressions after `re:`, or classes of modules.
        bits: Bits of one weight, if it says so.
        form: `"int"` or `"float"`, if it says so.
        group_size: Elements of a row that share a scale; None if it does not say.
        block: Extents of blocks that share a scale; None if it does not say.
        is_symmetric: Whether there are no zero points.
        format: How weights are packed, if it says so.
        has_input_scales: Whether inputs have fixed scales, which are stored.
    """

    name: str
    targets: tuple[str, ...]
    bits: int | None = None
    form: str | None = None
    group_size: int | None = None
    block: tuple[int, ...] | None = None
    is_symmetric: bool = True
    format: str | None = None
    has_input_scales: bool = False

    @property
    def scheme(self) -> tuple[object, ...]:
        """What two groups must agree on where both name a module."""
        return self.bits, self.form, self.group_size, self.block, self.is_symmetric


class QuantConfig(msgspec.Struct, frozen=True):
    """What a checkpoint's configuration says of quantization; all of it may be missing or wrong.

    Attributes:
        method: Such as `"gptq"`.
        format: Such as `"pack-quantized"` or `"gptq_v2"`.
        version: AWQ's order of numbers, such as `"gemm"`.
        bits: Bits of one weight.
        group_size: Elements of a row that share a scale.
        block: Extents of blocks that share a scale.
        groups: Groups of modules with settings of their own.
        ignored: Names or patterns of modules that are not quantized.
        skipped: The same as names, ends of names, or parts of them between dots.
        has_input_scales: Whether the inputs of all quantized modules have fixed scales, which are stored.
        has_cache_scales: Whether the KV cache has.
        source: The file that says so.
    """

    method: str | None = None
    format: str | None = None
    version: str | None = None
    bits: int | None = None
    group_size: int | None = None
    block: tuple[int, ...] | None = None
    groups: tuple[Group, ...] = ()
    ignored: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    has_input_scales: bool = False
    has_cache_scales: bool = False
    source: str = "config.json"

    @property
    def is_glob(self) -> bool:
        """Whether `*` in the names of ignored modules means any text."""
        return self.method == "modelopt"


NO_CONFIG: Final = QuantConfig()


def parse_config(config: Mapping[str, Any], other: Mapping[str, Any]) -> QuantConfig:
    """Return what `config.json` says, or else `hf_quant_config.json`; values of wrong types count as missing."""
    texts = _mapping(config.get("text_config"))
    for holder in (config, texts):
        for key in ("quantization_config", "compression_config"):
            given = _mapping(holder.get(key))
            if given:
                return _parsed(given)
    quantization = _mapping(other.get("quantization"))
    return _of_modelopt(quantization) if quantization else NO_CONFIG


def _parsed(given: Mapping[str, Any]) -> QuantConfig:
    block = _extents(given.get("weight_block_size"))
    skipped = [text for key in _SKIPPED_KEYS for text in _texts(given.get(key))]
    return QuantConfig(
        method=_method(given),
        format=_text(given.get("checkpoint_format")) or _text(given.get("format")),
        version=_text(given.get("version")),
        bits=_number(given.get("bits")) or _number(given.get("w_bit")),
        group_size=_number(given.get("group_size")) or _number(given.get("q_group_size")),
        block=block,
        groups=tuple(_groups(_mapping(given.get("config_groups")))),
        ignored=tuple(_texts(given.get("ignore"))),
        skipped=tuple(skipped),
        has_input_scales=given.get("activation_scheme") == "static",
        has_cache_scales=_is_fixed(given.get("kv_cache_scheme")),
    )


def _method(given: Mapping[str, Any]) -> str | None:
    method = _text(given.get("quant_method"))
    if method is None and (given.get("load_in_4bit") or given.get("load_in_8bit")):
        return "bitsandbytes"
    return "modelopt" if method is not None and method.startswith("modelopt") else method


def _of_modelopt(given: Mapping[str, Any]) -> QuantConfig:
    return QuantConfig(
        method="modelopt",
        format=_text(given.get("quant_algo")),
        group_size=_number(given.get("group_size")),
        ignored=tuple(_texts(given.get("exclude_modules"))),
        has_input_scales=_text(given.get("quant_algo")) in _MODELOPTS_FIXED,
        has_cache_scales=_text(given.get("kv_cache_quant_algo")) is not None,
        source="hf_quant_config.json",
    )


def _groups(given: Mapping[str, Any]) -> Iterator[Group]:
    for name, group in given.items():
        settings = _mapping(group)
        weights = _mapping(settings.get("weights"))
        strategy = _text(weights.get("strategy"))
        size = _number(weights.get("group_size"))
        yield Group(
            str(name),
            tuple(_texts(settings.get("targets"))),
            bits=_number(weights.get("num_bits")),
            form=_text(weights.get("type")),
            group_size=size if size and size > 0 and strategy not in {"channel", "tensor"} else None,
            block=_extents(weights.get("block_structure")),
            is_symmetric=weights.get("symmetric") is not False,
            format=_text(settings.get("format")),
            has_input_scales=_is_fixed(settings.get("input_activations")),
        )


def _is_fixed(scheme: Any) -> bool:
    """Say whether a scheme of activations has scales that are stored; those that are "local" have one of all."""
    return bool(_mapping(scheme)) and scheme.get("dynamic") is not True


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: Any) -> Sequence[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _number(value: Any) -> int | None:
    return value if type(value) is int and abs(value) < 2**31 else None


def _extents(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, list) and value and all((_number(extent) or 0) > 0 for extent in value):
        return tuple(value)
    return None
