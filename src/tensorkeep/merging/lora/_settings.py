"""`adapter_config.json`, as peft writes it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import sqrt

import msgspec

from tensorkeep.errors import FormatError, UnsupportedError

_REFUSED = (
    "layer_replication",
    "use_qalora",
    "use_bdlora",
    "alora_invocation_tokens",
    "arrow_config",
    "target_parameters",
    "trainable_token_indices",
)
"""Settings that give weights another meaning than is computed here."""

_CHANGED_BASES = ("pissa", "olora", "corda", "lora_ga")
"""How `init_lora_weights` begins for adapters that were trained on a base whose weights peft changed first."""

_LITERAL = re.compile(r"[\w.\-]+")
"""A pattern that is a name, in which peft takes a dot for any character. Others are regular expressions, which a file
could make run forever."""


class LoraSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the numbers depend on."""

    peft_type: str
    lora_alpha: float
    use_rslora: bool = False
    use_dora: bool = False
    fan_in_fan_out: bool = False
    alpha_pattern: dict[str, float] | None = None
    modules_to_save: list[str] | None = None

    def scale(self, layer: str, rank: int) -> float:
        """Return the factor of a layer's change."""
        patterns = (self.alpha_pattern or {}).items()
        alpha = next((alpha for end, alpha in patterns if _matches(layer, end)), self.lora_alpha)
        return alpha / (sqrt(rank) if self.use_rslora else rank)

    def is_saved(self, name: str) -> bool:
        """Say whether a tensor is of a module that the adapter has as a whole."""
        layer = name.rpartition(".")[0]
        return any(ends_with(layer, end) for end in self.modules_to_save or ())


def ends_with(name: str, end: str) -> bool:
    """Say whether a dotted name is another one, or ends with it."""
    return name == end or name.endswith(f".{end}")


def _matches(layer: str, pattern: str) -> bool:
    """Say whether a layer's name is what a pattern of `_LITERAL` describes, or ends with it."""
    return re.fullmatch(rf"(?:.*\.)?{pattern}", layer, re.DOTALL) is not None


def parse_settings(text: bytes, path: str) -> LoraSettings:
    """Read the settings, and refuse an adapter that is not a LoRA or is of a kind that is not known here."""
    try:
        found: Mapping[str, object] = msgspec.json.decode(text, type=dict[str, object])
        settings = msgspec.convert(found, LoraSettings)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError("these are no settings of a LoRA", path=path, found=str(error)) from None
    if settings.peft_type != "LORA":
        _refuse(path, "peft_type", settings.peft_type)
    for key in _REFUSED:
        if found.get(key):
            _refuse(path, key, found[key])
    init = found.get("init_lora_weights")
    if isinstance(init, str) and init.startswith(_CHANGED_BASES):
        _refuse(path, "init_lora_weights", init)
    for pattern in settings.alpha_pattern or {}:
        if not _LITERAL.fullmatch(pattern):
            _refuse(path, "alpha_pattern", pattern)
    return settings


def _refuse(path: str, key: str, found: object) -> None:
    raise UnsupportedError(
        "tensorkeep cannot add this kind of adapter",
        path=path,
        expected="a LoRA that names its layers, with rank and scale as in the paper",
        found=f"{key} = {found!r}",
        hint="Merge it with peft, and save the model with tensorkeep.integrations.transformers.save_pretrained",
    )
