"""HTML as a notebook gets it, checked: well-formed, small, and without anything that runs or loads."""

from __future__ import annotations

from html.parser import HTMLParser

ALLOWED = {
    *("div", "strong", "span", "details", "summary", "table", "thead", "tbody", "tr", "th", "td", "p"),
    *("svg", "g", "rect", "path", "line", "text", "title", "image"),
}
MAX_LENGTH = 200_000

__all__ = ["texts_of"]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, f"<{tag}> may run or load something"
        for name, value in attrs:
            assert not name.startswith("on"), f"{name} is a script"
            assert name != "href" or str(value).startswith("data:image/png;base64,"), f"{value} is loaded"
            assert "url(" not in str(value)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        assert data.isprintable(), repr(data)
        self.texts.append(data.strip())

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    handle_decl = handle_pi = unknown_decl = handle_comment


def texts_of(html: str) -> list[str]:
    """Return the texts of HTML, after checking that it is harmless and small."""
    assert len(html) <= MAX_LENGTH
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader.texts
