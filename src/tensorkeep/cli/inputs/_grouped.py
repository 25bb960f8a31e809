"""Groups of options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import typer

import tensorkeep
from tensorkeep.cli.inputs._keys import EncryptOptions, KeyOptions
from tensorkeep.cli.inputs._option_group import OptionGroup
from tensorkeep.cli.inputs._options import (
    Align,
    AsJson,
    Drop,
    Force,
    Keys,
    KeysBack,
    MaxShardSize,
    NewVariant,
    Order,
    Output,
    Provenance,
    Rename,
    Select,
    Sha256,
    StripPrefix,
    pairs_of,
    size_of,
)

if TYPE_CHECKING:
    from tensorkeep.tensors import LazyTensors
    from tensorkeep.transforms import KeyMap


class Chosen(OptionGroup, frozen=True, kw_only=True):
    """Which tensors to take."""

    select: Select = None
    drop: Drop = None


class Names(Chosen, frozen=True, kw_only=True):
    """Which tensors to take, and what to call them."""

    rename: Rename = None
    strip_prefix: StripPrefix = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of functions such as `reshard`."""
        renaming = pairs_of(self.rename, "--rename", "OLD=NEW")
        return {
            "select": self.select,
            "drop": self.drop,
            "rename": renaming or None,
            "strip_prefix": self.strip_prefix,
        }


class KeyMapping(OptionGroup, frozen=True, kw_only=True):
    """A key map, and its direction."""

    keys: Keys = None
    keys_back: KeysBack = False

    def renaming(self, names: Names) -> dict[str, Any]:
        """Return what `convert` takes as names, and the map as `rename`."""
        arguments = names.arguments()
        key_map = self._read()
        if key_map is None:
            return arguments
        if arguments["rename"] is not None:
            raise typer.BadParameter(
                "use either --keys or --rename: the key map can contain the new name", param_hint="'--rename'"
            )
        return {**arguments, "rename": key_map.new_name}

    def change(self) -> Callable[[LazyTensors], LazyTensors] | None:
        """Return what the map does to tensors; None without one."""
        key_map = self._read()
        return None if key_map is None else key_map.apply

    def _read(self) -> KeyMap | None:
        """Read the map in the direction that was asked for; None without one."""
        if self.keys is None:
            if self.keys_back:
                raise typer.BadParameter("needs a key map, given with --keys", param_hint="'--keys-back'")
            return None
        key_map: KeyMap = tensorkeep.transforms.KeyMap.read(self.keys)
        return key_map.inverse() if self.keys_back else key_map


class NewFiles(OptionGroup, frozen=True, kw_only=True):
    """What the new files are like."""

    max_shard_size: MaxShardSize = "5GB"
    sha256: Sha256 = False
    align: Align = 8
    order: Order = None
    output_variant: NewVariant = None
    provenance: Provenance = False

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of functions such as `reshard`."""
        return {**msgspec.structs.asdict(self), "max_shard_size": size_of(self.max_shard_size)}


class Saving(OptionGroup, frozen=True, kw_only=True):
    """Where a computed checkpoint goes, how it is reported, and the keys of what is read and written."""

    output: Output
    max_shard_size: MaxShardSize = "5GB"
    sha256: Sha256 = False
    force: Force = False
    as_json: AsJson = False
    key: KeyOptions
    encryption: EncryptOptions
