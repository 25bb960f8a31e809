"""What many ranks wrote with torch.distributed.checkpoint, as a kind."""

from __future__ import annotations

from tensorkeep.kinds._base import Kind
from tensorkeep.kinds._place import Place
from tensorkeep.kinds.dcp._location import DistributedLocation, find_distributed
from tensorkeep.kinds.dcp._open import open_distributed


def _find(place: Place) -> DistributedLocation | None:
    return None if place.path is None else find_distributed(place.path)


DISTRIBUTED = Kind(
    "what many ranks wrote with torch.distributed.checkpoint",
    _find,
    open_distributed,
    is_converted=True,
    is_gathered=True,
)
