"""What do the bytes mean? One folder or file per format; none knows where bytes come from or who holds tensors.

- `safetensors/`: the header of the native format, read and written.
- `archives/`: zip and tar, in which other formats keep their parts.
- `pickles/`: what `torch.save` writes, read without being run.
- `_sniff`: what a file really is, for the errors that say so.
"""

from tensorkeep.formats._sniff import SNIFF_NBYTES, Sniffed, sniff

__all__ = ["SNIFF_NBYTES", "Sniffed", "sniff"]
