"""`tensorkeep slice`: a part of one tensor, printed or written to a file, read without the rest."""

from __future__ import annotations

from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli._index import Index, parse_index_text
from tensorkeep.cli._npy import Float, as_float, write_npy
from tensorkeep.cli._preview import Preview, read_preview
from tensorkeep.cli._render import show, show_text, width
from tensorkeep.cli._text import shape_text
from tensorkeep.tensors import LazyTensor
