"""What `config.json` says of a model, changed as its tensors were. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeAlias

from tensorkeep.tensors import LazyTensors, Selector
from tensorkeep.transforms._layers import layers_of
from tensorkeep.transforms._vocabulary import vocabulary_of

Config: TypeAlias = dict[str, Any]

ConfigChange: TypeAlias = Callable[[Config, LazyTensors, LazyTensors], Config]
"""Takes the content of `config.json`, the tensors before and the tensors after, and returns the new content."""

_N_LAYERS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def vocabulary_in_config(names: Selector | Iterable[Selector] | None = None) -> ConfigChange:
    """Return a change that sets the number of tokens: `vocab_size`, wherever the configuration has it.

    Args:
        names: The tensors, as `resize_vocabulary` takes them.
    """

    def changed(config: Config, _: LazyTensors, after: LazyTensors) -> Config:
        size = next(iter(vocabulary_of(after, names).values())).shape[0]
        return _with_texts(config, lambda part: {**part, "vocab_size": size} if "vocab_size" in part else part)

    return changed


def layers_in_config(dropped: Collection[int], stack: str | None = None) -> ConfigChange:
    """Return a change that sets the number of layers, and removes dropped ones from lists such as `layer_types`.

    Args:
        dropped: The layers, as `drop_layers` takes them.
        stack: The name above their numbers.
    """

    def changed(config: Config, before: LazyTensors, _: LazyTensors) -> Config:
        [numbers] = layers_of(before, stack).values()
        return _with_texts(config, lambda part: _without_layers(part, len(numbers), frozenset(dropped)))

    return changed


def _without_layers(part: Config, n_before: int, dropped: Collection[int]) -> Config:
    """Change what speaks of so many layers."""
    if not any(part.get(key) == n_before for key in _N_LAYERS):
        return part
    new = dict(part)
    for key, value in part.items():
        if key in _N_LAYERS and value == n_before:
            new[key] = n_before - len(dropped)
        elif isinstance(value, list) and len(value) == n_before and key.endswith(("_types", "_pattern")):
            new[key] = [each for number, each in enumerate(value) if number not in dropped]
    return new


def _with_texts(config: Config, changed: Callable[[Config], Config]) -> Config:
    """Change a configuration and the one for text that it may have inside."""
    new = changed(config)
    texts = new.get("text_config")
    return {**new, "text_config": changed(texts)} if isinstance(texts, dict) else new
