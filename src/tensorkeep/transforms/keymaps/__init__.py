"""Names and forms of tensors in one library, and in another, as data.

- `_pattern`: names with placeholders. Pure.
- `_rule`: which tensors become which. Pure.
- `_plan`: what becomes of a checkpoint's names. Pure.
- `_tensors`: the tensors of the other side.
- `_key_map`: `KeyMap`, which is read from TOML.
"""

from tensorkeep.transforms.keymaps._key_map import KeyMap, KeyMapReport

__all__ = ["KeyMap", "KeyMapReport"]
