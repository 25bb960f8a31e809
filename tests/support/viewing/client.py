"""A browser's requests to a viewer."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import urllib3

from tensorkeep.viewing import Viewer


class Client:
    """Asks a viewer as its page does."""

    def __init__(self, viewer: Viewer) -> None:
        self.url = viewer.url
        self.pool = urllib3.PoolManager(retries=False)

    def request(self, name: str, method: str = "GET", **headers: str) -> urllib3.BaseHTTPResponse:
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        return self.pool.request(method, self.url + name, headers=given, redirect=False)

    def raw(self, name: str, **query: object) -> urllib3.BaseHTTPResponse:
        return self.request(f"api/{name}?{urlencode(query)}" if query else f"api/{name}")

    def get(self, name: str, **query: object) -> Any:
        response = self.raw(name, **query)
        assert response.status == 200, response.data
        return json.loads(response.data)

    def refused(self, name: str, **query: object) -> tuple[int, dict[str, Any]]:
        response = self.raw(name, **query)
        assert response.status >= 400, response.data
        return response.status, json.loads(response.data)["error"]

    def lines(self, name: str, **query: object) -> list[dict[str, Any]]:
        response = self.raw(name, **query)
        assert response.status == 200, response.data
        return [json.loads(line) for line in response.data.splitlines()]

    def result(self, name: str, **query: object) -> Any:
        return self.lines(name, **query)[-1]["result"]

    def rows(self, name: str, **query: object) -> list[list[Any]]:
        return [row for line in self.lines(name, **query) for row in line.get("rows", ())]
