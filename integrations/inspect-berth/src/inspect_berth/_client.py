"""The requests to Berth that the provider needs."""

import os
from types import TracebackType
from typing import Any

import anyio
import httpx

_CONNECT = 30.0  # seconds
_PATIENCE = 600.0  # seconds in which refused requests are repeated


class BerthError(Exception):
    """An error that Berth answered."""

    def __init__(self, status: int, message: str, param: str | None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param


class TooLarge(Exception):
    """A file is larger than the limit."""


def settings() -> tuple[str, str]:
    """Return the address of the server and the key."""
    url = os.environ.get("BERTH_URL") or "http://127.0.0.1:8080"
    return url.rstrip("/").removesuffix("/v1"), os.environ.get("BERTH_API_KEY") or ""


class Client:
    """A connection to Berth. Inspect runs each sample in one event loop, so a sandbox has a client of its own."""

    def __init__(self) -> None:
        url, key = settings()
        self._http = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(None, connect=_CONNECT),
        )

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def create(self, body: dict[str, Any]) -> str:
        """Create a container and return its id."""
        return str((await self._send("POST", "/v1/containers", json=body))["id"])

    async def delete(self, container: str) -> None:
        """Delete a container. It may be gone already."""
        try:
            await self._send("DELETE", f"/v1/containers/{container}")
        except BerthError as e:
            if e.status != 404:
                raise

    async def containers(self) -> list[dict[str, Any]]:
        """Return the project's containers."""
        found: list[dict[str, Any]] = []
        params: dict[str, str | int] = {"limit": 100}
        while True:
            page = await self._send("GET", "/v1/containers", params=params)
            found += page["data"]
            if not page["has_more"]:
                return found
            params["after"] = page["last_id"]

    async def exec(self, container: str, body: dict[str, Any]) -> dict[str, Any]:
        """Run a command to its end. It is killed if the caller is cancelled."""
        return await self._send("POST", f"/v1/containers/{container}/exec", json=body)

    async def template(self, name: str) -> dict[str, Any] | None:
        """Return the template that was built under a name, or None."""
        try:
            return await self._send("GET", f"/templates/{name}")
        except BerthError as e:
            if e.status == 404:
                return None
            raise

    async def upload(self, container: str, path: str, content: bytes) -> None:
        """Write a file that belongs to the user of commands."""
        await self._send(
            "POST",
            f"/v1/containers/{container}/guest/files",
            params={"path": path},
            content=content,
            headers={"Content-Type": "application/octet-stream"},
        )

    async def download(self, container: str, path: str, limit: int) -> bytes:
        """Read a file, or raise TooLarge."""
        found = bytearray()
        async with self._http.stream(
            "GET", f"/v1/containers/{container}/guest/files", params={"path": path}
        ) as response:
            if response.status_code >= 400:
                await response.aread()
                raise _error(response)
            async for piece in response.aiter_bytes():
                found += piece
                if len(found) > limit:
                    raise TooLarge
        return bytes(found)

    async def _send(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Send a request. It is repeated for some time if a limit refused it, because then nothing has happened."""
        deadline = anyio.current_time() + _PATIENCE
        pause = 0.5
        while True:
            response = await self._http.request(method, path, **options)
            if response.status_code != 429 or anyio.current_time() + pause > deadline:
                break
            await anyio.sleep(pause)
            pause = min(pause * 2, 15)
        if response.status_code >= 400:
            raise _error(response)
        try:
            answer = response.json()
        except ValueError:
            return {}
        return answer if isinstance(answer, dict) else {}


def _error(response: httpx.Response) -> BerthError:
    try:
        body = response.json()
    except ValueError:
        body = None
    error = body.get("error", body) if isinstance(body, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return BerthError(response.status_code, f"Berth answered with status {response.status_code}.", None)
    return BerthError(response.status_code, error["message"], error.get("param"))
