"""Arrow's files: they hold data, but some versions of its libraries run what is in the description of it.

pyarrow before 14.0.1 unpickles the types of columns (CVE-2023-47248), and R's arrow package before 17 unserializes
the metadata that it saves with a table (CVE-2024-52338).
"""

from __future__ import annotations

from typing import Final

from tensorkeep.formats.arrow import MAGIC, is_message, is_plain_r, read_document
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner.models._base import ModelForm
from tensorkeep.texts import listed


def _is_arrow(content: Content) -> bool:
    return content.read(min(len(MAGIC), content.nbytes)) == MAGIC or is_message(content.alone())


def _scan(content: Content, log: FindingLog) -> bool:
    """Report columns whose types are pickles, and what R would make more than data of."""
    document = read_document(content.alone())
    names = [f"`{name:.100}`" for name in document.pickled]
    if not all(map(is_plain_r, document.r_texts)):
        message = "R's arrow before 17 unserializes the metadata `r`, which are not known to be plain data"
        log.add("suspicious", message, content)
    if names:
        log.add("suspicious", f"pyarrow before 14.0.1 unpickles the types of columns: {listed(names)}", content)
    return True


ARROW: Final = ModelForm("Arrow file", _is_arrow, _scan)
