"""Arrow's files: they hold data, but pyarrow before 14.0.1 unpickles the types of columns (CVE-2023-47248)."""

from __future__ import annotations

from typing import Final

from tensorkeep.formats.arrow import MAGIC, is_message, read_document
from tensorkeep.phrases import listed
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner.models._base import ModelForm


def _is_arrow(content: Content) -> bool:
    return content.read(min(len(MAGIC), content.nbytes)) == MAGIC or is_message(content.alone())


def _scan(content: Content, log: FindingLog) -> bool:
    """Report columns whose types are pickles."""
    names = [f"`{name:.100}`" for name in read_document(content.alone()).pickled]
    if names:
        log.add("suspicious", f"pyarrow before 14.0.1 unpickles the types of columns: {listed(names)}", content)
    return True


ARROW: Final = ModelForm("Arrow file", _is_arrow, _scan)
