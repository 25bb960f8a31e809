"""Several processes, called ranks, save one checkpoint together, whatever library their arrays are of.

The library says which rank has which part of a tensor, gives the bytes of parts, and lends the ranks a store of
small values. The rest is here.

- `_key_values`: the store that ranks share, as a protocol.
- `_rendezvous`: what the ranks of a save exchange while they write.
- `_rank_plan`: which rank has which part of a tensor. Pure.
- `_assignments`: what each rank writes and reads. Pure.
- `_parts`: a part of a tensor, as a protocol, and its places in a file.
- `_fetched_parts`: parts on devices, which threads write while the devices copy the next ones.
- `_write_parts`: what a rank writes into files that all ranks see.
- `_encrypt_files`: what a rank writes if the checkpoint is encrypted.
- `_rank_save`: one save as one rank takes part in it.
"""

from tensorkeep.checkpoint.ranks._assignments import FillAssignment, PartToWrite
from tensorkeep.checkpoint.ranks._key_values import KeyValues
from tensorkeep.checkpoint.ranks._parts import Part
from tensorkeep.checkpoint.ranks._rank_plan import PlannedTensor, RankedTensors
from tensorkeep.checkpoint.ranks._rank_save import RankSave
from tensorkeep.checkpoint.ranks._rendezvous import Rendezvous
from tensorkeep.checkpoint.ranks._write_parts import write_parts

__all__ = [
    "FillAssignment",
    "KeyValues",
    "Part",
    "PartToWrite",
    "PlannedTensor",
    "RankSave",
    "RankedTensors",
    "Rendezvous",
    "write_parts",
]
