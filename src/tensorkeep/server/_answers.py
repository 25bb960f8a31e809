"""The answer to a request. No network here: a question goes in, and an answer comes out."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec

from tensorkeep.server._access import Access
from tensorkeep.server._body import FileBody, one_part, several_parts
from tensorkeep.server._conditions import decide, version_of
from tensorkeep.server._listing import Listing, kind_of
from tensorkeep.server._paths import Asked, asked_by, link_to
from tensorkeep.server._tree import Entry, Opened, entries_of, open_below

_COPIED_NBYTES: Final = 2**16
"""Bytes up to which a part of a file is sent from memory together with the headers, which saves a call."""

_MAX_KINDS: Final = 1000
"""Most subfolders of a folder that are opened to say what they hold."""

_TYPES: Final = {
    ".json": "application/json",
    ".jsonl": "text/plain; charset=utf-8",
    ".log": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".yaml": "text/plain; charset=utf-8",
    ".yml": "text/plain; charset=utf-8",
}
"""Types that browsers display; they save all others. None is HTML, which could run scripts."""

HEADERS: Final = {
    "Server": "tensorkeep",
    "Tensorkeep-Server": "1",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
}
"""Headers of every answer."""

_BUSY: Final = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


class Site(msgspec.Struct, frozen=True):
    """What is served, and to whom.

    Attributes:
        root: The directory.
        access: Who may read.
        is_prompt: Whether opening a file waits for no other machine, so that the event loop may do it.
    """

    root: str
    access: Access
    is_prompt: bool = False


class Question(msgspec.Struct, frozen=True):
    """A request.

    Attributes:
        method: Such as `GET`.
        target: The requested path and query, as sent.
        headers: Name in lower case to value.
    """

    method: str
    target: str
    headers: Mapping[str, str]


class Answer(NamedTuple):
    """A response.

    Attributes:
        status: The status.
        headers: Name to value, with the length of the body.
        body: The bytes, or the parts of a file that contain them.
    """

    status: int
    headers: dict[str, str]
    body: bytes | FileBody = b""


def answer_to(question: Question, site: Site) -> Answer:
    """Answer a request; may wait for the disk."""
    return _answer(question, site, _whole) or _short(500)


def answer_at_once(question: Question, site: Site) -> Answer | None:
    """Answer a request for a file without waiting; None if that needs a listing, the disk or another machine."""
    if not site.is_prompt or question.target.endswith("/"):
        return None
    return _answer(question, site, FileBody.in_memory)


_Read = Callable[[FileBody], bytes | None]
"""Returns the bytes of a short body; None if that would take time that is not given."""


def _whole(body: FileBody) -> bytes | None:
    return b"".join(piece if isinstance(piece, bytes) else body.read(piece) for piece in body.pieces)


def _answer(question: Question, site: Site, read: _Read) -> Answer | None:
    refusal = site.access.refusal(question.headers)
    if refusal is not None:
        return _refused(refusal)
    if question.method not in {"GET", "HEAD"}:
        return _short(405, Allow="GET, HEAD")
    try:
        return _found(question, site, read)
    except PermissionError:
        return _short(403)
    except OSError as error:
        return _short(503, **{"Retry-After": "1"}) if error.errno in _BUSY else _short(500)


def _found(question: Question, site: Site, read: _Read) -> Answer | None:
    asked = asked_by(question.target)
    opened = open_below(site.root, asked.names) if asked is not None else None
    if opened is None or asked is None:
        return _short(404)
    if not opened.is_folder:
        return _of_file(question, asked, opened, read)
    if read is not _whole:
        opened.close()
        return None
    return _of_folder(question, site, asked, opened)


def _refused(status: int) -> Answer:
    if status == 401:
        challenge = 'Basic realm="tensorkeep", charset="UTF-8"'
        return _short(401, "This server requires a token.", **{"WWW-Authenticate": f"Bearer, {challenge}"})
    return _short(status, "Without a token, this server answers only requests to localhost.")


def _short(status: int, text: str = "", **headers: str) -> Answer:
    """Answer with one line of text for people."""
    body = f"{status} {HTTPStatus(status).phrase}{'. ' if text else ''}{text}\n".encode()
    return _with_body(status, "text/plain; charset=utf-8", body, **headers)


def _with_body(status: int, content_type: str, body: bytes, **headers: str) -> Answer:
    own = {"Content-Type": content_type, "Content-Length": str(len(body))}
    return Answer(status, HEADERS | own | headers, body)


def _of_folder(question: Question, site: Site, asked: Asked, opened: Opened) -> Answer:
    with closing(opened):
        if not asked.is_folder:  # links on its page are relative to a path with a slash
            return _short(301, Location=link_to(asked.names[-1], is_folder=True))
        entries = list(entries_of(site.root, opened))
    accepted = question.headers.get("accept", "*/*")
    marks = {"Tensorkeep-Directory": "1", "Vary": "Accept"}
    path = "/" + "".join(f"{name}/" for name in asked.names)
    if "text/html" in accepted and "application/json" not in accepted:
        listing = Listing(path, entries, _kinds(site, asked, entries))
        return _with_body(200, "text/html; charset=utf-8", listing.as_html(), **marks)
    return _with_body(200, "application/json", Listing(path, entries, {}).as_json(), **marks)


def _kinds(site: Site, asked: Asked, entries: list[Entry]) -> dict[str, str]:
    """Return subfolder name to what the folder holds, where that is known."""
    kinds = {}
    for entry in [entry for entry in entries if entry.is_folder][:_MAX_KINDS]:
        with suppress(OSError):
            opened = open_below(site.root, (*asked.names, entry.name))
            if opened is not None:
                with closing(opened):
                    names = [each.name + "/" * each.is_folder for each in entries_of(site.root, opened)]
                kinds[entry.name] = kind_of(names) or ""
    return kinds


def _of_file(question: Question, asked: Asked, opened: Opened, read: _Read) -> Answer | None:
    file = io.FileIO(opened.fd, "rb")
    answer: Answer | None = None
    try:
        is_file = not asked.is_folder
        answer = _of_status(question, asked.names[-1], file, opened.status, read) if is_file else _short(404)
        return answer
    finally:
        if answer is None or not isinstance(answer.body, FileBody):
            file.close()


def _of_status(question: Question, name: str, file: io.FileIO, opened: os.stat_result, read: _Read) -> Answer | None:
    version = version_of(opened)
    status, spans = decide(question.method, question.headers, version)
    headers = {"ETag": version.etag, "Last-Modified": version.last_modified, "Accept-Ranges": "bytes"}
    if status == 304:
        return Answer(304, HEADERS | headers)
    if status == 416:
        headers["Content-Range"] = f"bytes */{version.nbytes}"
    if status not in {200, 206}:
        return _short(status, **headers)
    content_type = _TYPES.get(os.path.splitext(name)[1].lower(), "application/octet-stream")
    if len(spans) == 1:
        body = one_part(file, opened, spans[0])
    else:
        body, content_type = several_parts(file, opened, spans, content_type)
    if status == 206 and len(spans) == 1:
        headers["Content-Range"] = f"bytes {spans[0].start}-{spans[0].stop - 1}/{version.nbytes}"
    headers |= {"Content-Type": content_type, "Content-Length": str(body.nbytes)}
    if question.method == "HEAD":
        return Answer(status, HEADERS | headers)
    data = read(body) if body.nbytes <= _COPIED_NBYTES else body
    if data is None or isinstance(data, FileBody):
        return data and Answer(status, HEADERS | headers, data)
    if len(data) < body.nbytes or not body.is_as_promised():
        return _short(503, **{"Retry-After": "1"})  # it is being changed right now
    return Answer(status, HEADERS | headers, data)
