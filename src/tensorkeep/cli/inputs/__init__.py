"""What people type, and the values that it becomes.

- `_options`: arguments and options that several commands share.
- `_option_group`: those of a group as one value.
- `_grouped`: the groups.
- `_keys`: where the keys of encrypted checkpoints are.
- `_completion`: what the Tab key offers.
- `_merging`: arguments and options of the commands that merge models.
- `_rules`: the rules of a store as options.
- `_index_syntax`: parses an index such as `[0:4, :8]` without evaluating it. Pure.
- `_preview`: the part of a large tensor that is printed, read without the rest.
- `_npy`: writes an array to a `.npy` file.
"""

from tensorkeep.cli.inputs._completion import export_formats, libraries, tensor_names
from tensorkeep.cli.inputs._grouped import Chosen, KeyMapping, Names, NewFiles, Saving
from tensorkeep.cli.inputs._index_syntax import Index, parse_index_text
from tensorkeep.cli.inputs._keys import EncryptOptions, KeyOptions, keys_of, open_any
from tensorkeep.cli.inputs._merging import (
    BaseModel,
    Integers,
    Models,
    Scale,
    Weights,
    integers_of,
    weights_of,
)
from tensorkeep.cli.inputs._npy import Float, as_float, check_npy_path, write_npy
from tensorkeep.cli.inputs._option_group import OptionGroup, ungrouped
from tensorkeep.cli.inputs._options import (
    Align,
    AsJson,
    AsSarif,
    Balance,
    Cast,
    Dequantize,
    Destination,
    Drop,
    Dtypes,
    Engine,
    Force,
    MaxShardSize,
    NewVariant,
    Order,
    Output,
    Rename,
    Rewritten,
    Select,
    Sha256,
    SplitLarge,
    Stochastic,
    StripPrefix,
    Target,
    TrustedBy,
    Variant,
    dtypes_of,
    pairs_of,
    require_one_form,
    share_of,
    size_of,
)
from tensorkeep.cli.inputs._preview import read_preview
from tensorkeep.cli.inputs._rules import Greatest, KeepBest, KeepEvery, KeepLast, Monitor, Store, rules_of

__all__ = [
    "Align",
    "AsJson",
    "AsSarif",
    "Balance",
    "BaseModel",
    "Cast",
    "Chosen",
    "Dequantize",
    "Destination",
    "Drop",
    "Dtypes",
    "EncryptOptions",
    "Engine",
    "Float",
    "Force",
    "Greatest",
    "Index",
    "Integers",
    "KeepBest",
    "KeepEvery",
    "KeepLast",
    "KeyMapping",
    "KeyOptions",
    "MaxShardSize",
    "Models",
    "Monitor",
    "Names",
    "NewFiles",
    "NewVariant",
    "OptionGroup",
    "Order",
    "Output",
    "Rename",
    "Rewritten",
    "Saving",
    "Scale",
    "Select",
    "Sha256",
    "SplitLarge",
    "Stochastic",
    "Store",
    "StripPrefix",
    "Target",
    "TrustedBy",
    "Variant",
    "Weights",
    "as_float",
    "check_npy_path",
    "dtypes_of",
    "export_formats",
    "integers_of",
    "keys_of",
    "libraries",
    "open_any",
    "pairs_of",
    "parse_index_text",
    "read_preview",
    "require_one_form",
    "rules_of",
    "share_of",
    "size_of",
    "tensor_names",
    "ungrouped",
    "weights_of",
    "write_npy",
]
