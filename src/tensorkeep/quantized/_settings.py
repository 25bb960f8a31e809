"""What a configuration says of each module. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tensorkeep.quantized._config import Group, QuantConfig
from tensorkeep.quantized._patterns import Patterns
from tensorkeep.quantized._record import LayoutFinding

_replace_numbers = re.compile(r"(?<![^.])\d+(?![^.])").sub


class Settings:
    """A configuration whose patterns are ready to be matched.

    Attributes:
        config: The configuration.
        notes: Name to value of the small tensors that say shapes.
        last_parts: What the names of all stored tensors have after the last dot: a few, by which parts that no tensor
            has need not be looked for in each module.
    """

    def __init__(self, config: QuantConfig, notes: Mapping[str, Any], last_parts: frozenset[str]) -> None:
        self.config = config
        self.notes = notes
        self.last_parts = last_parts
        self._of_target = [(group, target) for group in config.groups for target in group.targets]
        self._targets = Patterns(target for _, target in self._of_target)
        self._classes = [group for group in config.groups if any(map(_is_class, group.targets))]
        self._ignored = Patterns(config.ignored, is_glob=config.is_glob)
        self._skipped = frozenset(config.skipped)
        self._lengths = {part.count(".") + 1 for part in config.skipped}
        self._overlaps: dict[tuple[str, ...], list[str]] = {}
        self._groups: dict[str, Group | None] = {}

    @property
    def block(self) -> tuple[int, ...] | None:
        """Extents of blocks, if the configuration has them for all modules."""
        return self.config.block

    def group_of(self, module: str) -> Group | None:
        """Return the group that a module is in: the first that names it, or else its class."""
        if not self.config.groups:
            return None
        if module not in self._groups:
            self._groups[module] = self._found_group(module)
        return self._groups[module]

    def _found_group(self, module: str) -> Group | None:
        named = list(dict.fromkeys(self._of_target[number][0] for number in self._targets.matching(module)))
        groups = named or self._classes
        if len({group.scheme for group in groups}) > 1:
            self._overlaps.setdefault(tuple(group.name for group in groups), []).append(module)
        return groups[0] if groups else None

    def has_input_scale(self, module: str) -> bool:
        """Say whether the inputs of a quantized module have a scale that is stored."""
        if not self.config.groups:
            return self.config.has_input_scales
        group = self.group_of(module)
        return group is not None and group.has_input_scales

    def ignores(self, module: str) -> str | None:
        """Return what leaves a module out; None if nothing does."""
        matching = self._ignored.matching(module)
        if matching:
            return self._ignored.texts[matching[0]]
        parts = self._parts_of(module) if self._skipped else []
        return None if self._skipped.isdisjoint(parts) else next(part for part in parts if part in self._skipped)

    def _parts_of(self, module: str) -> list[str]:
        """Return the parts of a name between dots that can be among the skipped ones."""
        words = module.split(".")
        parts = words if 1 in self._lengths else []
        for length in self._lengths - {1}:
            parts = [*parts, *(".".join(words[at : at + length]) for at in range(len(words) - length + 1))]
        return parts

    def overlaps(self) -> Iterator[LayoutFinding]:
        """Give the groups that named the same module and differ, as far as modules were looked up."""
        for names, modules in self._overlaps.items():
            yield LayoutFinding(
                "overlap",
                f"groups {' and '.join(names)} of the configuration name the same modules and differ",
                found=f"`{modules[0]}`" + (f" and {len(modules) - 1:,} more" if len(modules) > 1 else ""),
            )


def _is_class(target: str) -> bool:
    """Say whether a target is a class of modules: modules that are not in others have names like `lm_head`."""
    return target.isidentifier() and target[0].isupper()


def module_of(name: str) -> str:
    """Return the module that a tensor is in."""
    return name.rpartition(".")[0]


def kind_of(name: str) -> str:
    """Return what a name has in common with its counterparts in other layers."""
    return _replace_numbers("*", name)
