"""A web server that answers as the Hugging Face Hub does, to those who read and to those who publish.

What it asks of clients, and what it answers, is what huggingface_hub sends and expects: preupload, the batch of Git
LFS, signed uploads in one piece or several, and the commit. It is stricter than needed in one place: a request that
carries the token to a signed address is refused.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

SMALL_NBYTES = 1000
"""Size up to which files are in the repository itself, but for those that its `.gitattributes` names."""

PART_NBYTES = 2**20
"""Size of an upload's parts; smaller files are sent in one piece."""

PAGE_LENGTH = 50
"""Files in one page of a listing."""

_is_sha256 = re.compile("[0-9a-f]{64}").fullmatch

Files = dict[str, bytes]


def is_large(path: str, nbytes: int) -> bool:
    """Say whether a file is elsewhere, by its SHA-256; an empty one never is, since uploads of nothing fail."""
    return nbytes > SMALL_NBYTES or (nbytes > 0 and path.endswith((".safetensors", ".npz", ".bin")))


class Refusal(Exception):
    """An answer that is not what was asked for."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Fault(NamedTuple):
    """Something that goes wrong once.

    Attributes:
        place: Part of the path that it happens at.
        status: What is answered; None where the connection is cut.
        is_late: Whether the request is carried out before.
    """

    place: str
    status: int | None
    is_late: bool = False


class HubServer:
    """Serves one repository, and those that are created, until the block ends.

    Args:
        repo: Such as `org/model`.
        files: Path in it to bytes.
        token: What readers must know; None where anybody may read.
        writer: The token of who may write.
        is_gated: Whether readers other than the writer have to ask for access first.

    Attributes:
        promised: Path to a SHA-256 that is said in place of the true one.
        requests: Method, path and range of each request.
        commits: Message, sent paths and removed paths of each commit.
        faults: What goes wrong, each once.
        on_request: Called with the path of each request before it is carried out.
        ignored: Paths that `.gitignore` names.
        xet: The storage that clients of Xet write to; `local://` and a directory is one that they write themselves.
    """

    def __init__(
        self,
        repo: str,
        files: Files,
        token: str | None = None,
        *,
        writer: str | None = None,
        is_gated: bool = False,
    ) -> None:
        self.repo, self.token, self.writer, self.is_gated = repo, token, writer, is_gated
        self.branches: dict[tuple[str, str], str] = {}
        self.trees: dict[str, Files] = {}
        self.objects: Files = {}
        self.private: set[str] = set()
        self.ignored: set[str] = set()
        self.xet = "https://xet.example"
        self.promised: dict[str, str] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.commits: list[tuple[str, list[str], list[str]]] = []
        self.faults: list[Fault] = []
        self.on_request: Callable[[str], object] = lambda _: None
        self.lock = threading.RLock()
        self.add(repo, "main", files)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.owner = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def files(self) -> Files:
        return self.trees[self.branches[self.repo, "main"]]

    def head(self, branch: str = "main") -> str:
        return self.branches[self.repo, branch]

    def add(self, repo: str, branch: str, files: Files) -> str:
        """Let a branch have these files, in a new commit."""
        commit = secrets.token_hex(20)
        self.trees[commit] = files
        self.branches[repo, branch] = commit
        return commit

    def sent(self, kind: str) -> list[str]:
        """The paths of requests whose path has this in it."""
        return [path for _, path, _ in self.requests if kind in path]

    def fault_for(self, path: str) -> Fault | None:
        with self.lock:
            found = next((fault for fault in self.faults if fault.place in path), None)
            if found is not None:
                self.faults.remove(found)
            return found

    def tree(self, repo: str, revision: str) -> tuple[str, Files]:
        """Return a commit and its files."""
        if not any(known == repo for known, _ in self.branches):
            raise Refusal(404, "Repository not found", "RepoNotFound")
        commit = self.branches.get((repo, revision), revision)
        if commit not in self.trees:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit, self.trees[commit]

    def describe(self, files: Files, path: str) -> dict[str, Any]:
        data = files[path]
        found: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": git_id(data)}
        if is_large(path, len(data)):
            found["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return found

    def commit(self, repo: str, branch: str, lines: Iterable[bytes]) -> str:
        """Carry out the lines of a commit: all or none."""
        header, *changes = [json.loads(line) for line in lines if line.strip()]
        if header["key"] != "header" or not header["value"]["summary"]:
            raise Refusal(400, "the first line has to be the header, with a summary")
        with self.lock:
            parent, files = self.tree(repo, branch)
            if header["value"].get("parentCommit", parent) != parent:
                raise Refusal(412, "A commit has happened since. Please refresh and try again.")
            new, sent, removed = dict(files), [], []
            for change in changes:
                key, value = change["key"], change["value"]
                path = value["path"]
                if path in (*sent, *removed):
                    raise Refusal(400, f"{path} is in the commit twice")
                if key == "deletedFile":
                    if new.pop(path, None) is None:
                        raise Refusal(404, "A file with this name doesn't exist", "EntryNotFound")
                    removed.append(path)
                    continue
                new[path] = self._content(key, value)
                sent.append(path)
            self.commits.append((header["value"]["summary"], sorted(sent), sorted(removed)))
            return self.add(repo, branch, new)

    def _content(self, key: str, value: dict[str, Any]) -> bytes:
        if key == "file" and value["encoding"] == "base64":
            data = base64.b64decode(value["content"], validate=True)
            if is_large(value["path"], len(data)):
                raise Refusal(400, f"{value['path']} is too large for a regular file: use LFS")
            return data
        if key != "lfsFile" or value["algo"] != "sha256":
            raise Refusal(400, f"cannot carry out {key}")
        data = self.objects.get(value["oid"])  # type: ignore[assignment]
        if data is None or len(data) != value["size"] or not data:
            raise Refusal(400, "Your push was rejected because an LFS pointer pointed to a file that does not exist")
        return data


def git_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    @property
    def owner(self) -> HubServer:
        return self.server.owner  # type: ignore[attr-defined, no-any-return]

    def do_GET(self) -> None:
        self._carry_out(b"")

    def do_HEAD(self) -> None:
        self._carry_out(b"")

    def do_POST(self) -> None:
        self._carry_out(self._body())

    def do_PUT(self) -> None:
        self._carry_out(self._body())

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers["Content-Length"]))
        pieces = []
        while nbytes := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(nbytes))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _carry_out(self, body: bytes) -> None:
        raw = urlsplit(self.path)
        path = unquote(raw.path)
        self.owner.requests.append((self.command, path, self.headers.get("Range")))
        self.owner.on_request(path)
        fault = self.owner.fault_for(path)
        try:
            if fault is not None and not self._befalls(fault, raw.path, parse_qs(raw.query), body):
                return
            self._answer(raw.path, parse_qs(raw.query), body, self._send)
        except Refusal as refusal:
            text = json.dumps({"error": str(refusal)}).encode()
            headers = {"Content-Type": "application/json", "X-Error-Message": str(refusal)}
            self._send(refusal.status, headers | ({"X-Error-Code": refusal.code} if refusal.code else {}), text)

    def _befalls(self, fault: Fault, raw: str, query: dict[str, list[str]], body: bytes) -> bool:
        """Let something go wrong; return whether there is anything to answer."""
        if fault.is_late:
            self._answer(raw, query, body, lambda *_: None)
        if fault.status is not None:
            raise Refusal(fault.status, "something went wrong")
        self.close_connection = True
        return False

    def _answer(self, raw: str, query: dict[str, list[str]], body: bytes, send: Callable[..., None]) -> None:
        path = unquote(raw)
        if path.startswith(("/cdn/", "/signed/")):
            self._answer_signed(path, query, body, send)
            return
        self._check_reader()
        if "/xet-write-token/" in path:
            self._check_writer()
            token = {"Cas-Url": self.owner.xet, "Access-Token": "for-xet", "Token-Expiration": str(2**31)}
            known = {"casUrl": self.owner.xet, "accessToken": "for-xet", "exp": 2**31}
            send(200, {f"X-Xet-{name}": text for name, text in token.items()}, json.dumps(known).encode())
            return
        if self.command in {"GET", "HEAD"} or "/paths-info/" in path:
            self._answer_reader(raw, query, body, send)
            return
        self._check_writer()
        self._answer_writer(raw, body, send)

    def _check_reader(self) -> None:
        token = self._token()
        if token is not None and token not in {self.owner.token, self.owner.writer}:
            raise Refusal(401, "Invalid credentials in Authorization header")
        if self.owner.is_gated and token != self.owner.writer:
            raise Refusal(403 if token else 401, "Access to model is restricted", "GatedRepo")
        if self.owner.token is not None and token is None:
            raise Refusal(401, "not you", "GatedRepo")

    def _check_writer(self) -> None:
        if self.owner.writer is None or self._token() != self.owner.writer:
            raise Refusal(403 if self._token() else 401, "you may not write here")

    def _token(self) -> str | None:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None

    def _answer_reader(self, raw: str, query: dict[str, list[str]], body: bytes, send: Callable[..., None]) -> None:
        owner, path = self.owner, unquote(raw)
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(tree|paths-info)/([^/]+)(?:/(.*))?", raw):
            repo, what, revision, folder = (unquote(part or "") for part in found.groups())
            _, files = owner.tree(repo, revision)
            if what == "paths-info":
                wanted = unquote(body.decode())
                self._send_json(send, [owner.describe(files, name) for name in files if name in wanted])
                return
            self._list(files, folder, query, send)
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", raw):
            commit, files = owner.tree(unquote(found[1]), unquote(found[2] or "main"))
            siblings = [{"rfilename": name} for name in files]
            self._send_json(send, {"id": unquote(found[1]), "sha": commit, "siblings": siblings})
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", raw):
            repo, revision, name = map(unquote, found.groups())
            commit, files = owner.tree(repo, revision)
            if name not in files:
                raise Refusal(404, "nothing", "EntryNotFound")
            self._resolve(commit, name, files[name], send)
        else:
            raise Refusal(404, "nothing", "RepoNotFound" if path.startswith("/api/") else "EntryNotFound")

    def _list(self, files: Files, folder: str, query: dict[str, list[str]], send: Callable[..., None]) -> None:
        folder = folder.strip("/")
        below = [name for name in sorted(files) if not folder or name.startswith(f"{folder}/")]
        if folder and not below:
            raise Refusal(404, f"{folder} does not exist", "EntryNotFound")
        rest = {name: name.removeprefix(folder).strip("/") for name in below}
        is_recursive = query.get("recursive") in (["true"], ["True"], ["1"])
        entries = [self.owner.describe(files, name) for name in below if is_recursive or "/" not in rest[name]]
        folders = sorted({f"{folder}/{each.partition('/')[0]}".strip("/") for each in rest.values() if "/" in each})
        if not is_recursive:
            entries += [{"type": "directory", "path": name, "oid": "1" * 40, "size": 0} for name in folders]
        start = int(query.get("cursor", ["0"])[0])
        headers = {"Content-Type": "application/json"}
        if len(entries) > start + PAGE_LENGTH:
            here = f"{self.owner.url}{urlsplit(self.path).path}?cursor={start + PAGE_LENGTH}"
            headers["Link"] = f'<{here}{"&recursive=true" if is_recursive else ""}>; rel="next"'
        send(200, headers, json.dumps(entries[start : start + PAGE_LENGTH]).encode())

    def _resolve(self, commit: str, name: str, data: bytes, send: Callable[..., None]) -> None:
        if not is_large(name, len(data)):
            self._give(data, send, {"X-Repo-Commit": commit, "ETag": f'"{git_id(data)}"'})
            return
        sha256 = hashlib.sha256(data).hexdigest()
        promised = self.owner.promised.get(name, sha256)
        headers = {
            "Location": f"http://localhost:{self.server.server_address[1]}/cdn/{sha256}",  # another server, by name
            "X-Linked-Etag": f'"{promised}"',
            "X-Linked-Size": str(len(data)),
            "X-Repo-Commit": commit,
        }
        send(302, headers, b"elsewhere")

    def _answer_writer(self, raw: str, body: bytes, send: Callable[..., None]) -> None:
        if raw.startswith("/api/models/"):
            self._change(raw, body, send)
        elif raw == "/api/repos/create":
            self._create(json.loads(body), send)
        elif raw == "/api/validate-yaml":
            self._send_json(send, {"errors": [], "warnings": []})
        elif re.fullmatch(r"/[^/]+/[^/]+\.git/info/lfs/objects/batch", raw):
            self._batch(json.loads(body), send)
        elif raw == "/api/verify":
            asked = json.loads(body)
            if len(self.owner.objects.get(asked["oid"], b"")) != asked["size"]:
                raise Refusal(400, "the size of the uploaded object differs")
            self._send_json(send, {})
        else:
            raise Refusal(404, f"nothing to write at {raw}")

    def _create(self, asked: dict[str, Any], send: Callable[..., None]) -> None:
        owner, repo = self.owner, f"{asked['organization']}/{asked['name']}"
        if (repo, "main") in owner.branches:
            raise Refusal(409, "You already created this model repo")
        owner.add(repo, "main", {".gitattributes": b"*.safetensors filter=lfs\n"})
        if asked.get("visibility") == "private":
            owner.private.add(repo)
        self._send_json(send, {"url": f"{owner.url}/{repo}", "name": repo, "id": repo})

    def _change(self, raw: str, body: bytes, send: Callable[..., None]) -> None:
        owner = self.owner
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(branch|preupload|commit)/([^/]+)", raw)
        if found is None:
            raise Refusal(404, f"nothing to write at {raw}")
        repo, what, branch = map(unquote, found.groups())
        if what == "branch":
            if (repo, branch) in owner.branches:
                raise Refusal(409, "Reference already exists")
            owner.branches[repo, branch] = owner.tree(repo, json.loads(body).get("startingPoint", "main"))[0]
            self._send_json(send, {})
        elif what == "preupload":
            _, files = owner.tree(repo, branch)
            self._send_json(send, {"files": [self._mode(files, file) for file in json.loads(body)["files"]]})
        else:
            commit = owner.commit(repo, branch, body.split(b"\n"))
            url = f"{owner.url}/{repo}/commit/{commit}"
            self._send_json(send, {"success": True, "commitUrl": url, "commitOid": commit})

    def _mode(self, files: Files, asked: dict[str, Any]) -> dict[str, Any]:
        path = asked["path"]
        sample = base64.b64decode(asked["sample"], validate=True)
        if len(sample) != min(asked["size"], 512):
            raise Refusal(400, "the sample has the wrong size")
        found: dict[str, Any] = {
            "path": path,
            "uploadMode": "lfs" if is_large(path, asked["size"]) else "regular",
            "shouldIgnore": path in self.owner.ignored,
        }
        if path in files:
            data = files[path]
            found["oid"] = hashlib.sha256(data).hexdigest() if is_large(path, len(data)) else git_id(data)
        return found

    def _batch(self, asked: dict[str, Any], send: Callable[..., None]) -> None:
        if asked["operation"] != "upload" or asked["hash_algo"] != "sha256" or "basic" not in asked["transfers"]:
            raise Refusal(422, "cannot do that")
        self._send_json(send, {"transfer": "basic", "objects": [self._actions(each) for each in asked["objects"]]})

    def _actions(self, asked: dict[str, Any]) -> dict[str, Any]:
        oid, nbytes = asked["oid"], asked["size"]
        if not _is_sha256(oid):
            return asked | {"error": {"code": 422, "message": "not an oid"}}
        if oid in self.owner.objects:
            return asked
        href = f"{self.owner.url}/signed/{oid}"
        header: dict[str, str] = {}
        if nbytes > PART_NBYTES:
            n_parts = -(-nbytes // PART_NBYTES)
            header = {"chunk_size": str(PART_NBYTES)} | {
                f"{n + 1:05d}": f"{href}?part={n + 1}" for n in range(n_parts)
            }
        upload = {"href": href, "header": header}
        return asked | {"actions": {"upload": upload, "verify": {"href": f"{self.owner.url}/api/verify"}}}

    def _answer_signed(self, path: str, query: dict[str, list[str]], body: bytes, send: Callable[..., None]) -> None:
        """Answer at an address that needs no token, and must not be told one."""
        if self._token() is not None:
            raise Refusal(400, "the token is none of the business of whoever stores the files")
        owner, oid = self.owner, path.rpartition("/")[2]
        if path.startswith("/cdn/"):
            stored = [data for files in list(owner.trees.values()) for data in files.values()]
            known = {hashlib.sha256(data).hexdigest(): data for data in stored}
            self._give(known[oid], send)
            return
        if "part" in query:
            owner.objects[f"{oid}-{query['part'][0]}"] = body
            send(200, {"ETag": hashlib.md5(body).hexdigest()}, b"")
            return
        if self.command == "POST":  # all parts are there
            parts = [owner.objects.pop(f"{oid}-{part['partNumber']}") for part in json.loads(body)["parts"]]
            body = b"".join(parts)
        if hashlib.sha256(body).hexdigest() != oid:
            raise Refusal(400, "the content does not have that SHA-256")
        owner.objects[oid] = body
        send(200, {"ETag": hashlib.md5(body).hexdigest()}, b"")

    def _give(self, data: bytes, send: Callable[..., None], headers: dict[str, str] | None = None) -> None:
        tag = {"ETag": f'"{hashlib.md5(data).hexdigest()}"'} | (headers or {})
        span = self.headers.get("Range")
        if span is None:
            send(200, tag, data)
            return
        first, _, last = span.removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last) + 1, len(data))
        send(206, tag | {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}, data[start:stop])

    def _send_json(self, send: Callable[..., None], value: Any) -> None:
        send(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
