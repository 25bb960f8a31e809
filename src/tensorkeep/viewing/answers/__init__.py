"""What is shown of open checkpoints, as values that JSON has. Nothing here knows of HTTP.

- `_catalog`: all tensors as columns, from headers alone. Pure.
- `_statistics`: what the numbers of a tensor are like.
"""

from tensorkeep.viewing.answers._catalog import Catalog, CatalogFile, Columns, DtypeTotal, catalog
from tensorkeep.viewing.answers._statistics import measured, members

__all__ = [
    "Catalog",
    "CatalogFile",
    "Columns",
    "DtypeTotal",
    "catalog",
    "measured",
    "members",
]
