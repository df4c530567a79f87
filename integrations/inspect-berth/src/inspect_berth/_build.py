"""Images and Dockerfiles: they become templates, which the server keeps."""

import hashlib
import os
from pathlib import Path
from typing import Any

import anyio
from inspect_ai.util import concurrency

from ._client import Client, settings
from ._config import BerthService, Unsupported

_BUILDS = 20  # concurrent; the server queues them


class Built:
    """What a template gives its sandboxes."""

    def __init__(self, snapshot: str, user: str | None, cwd: str | None, env: dict[str, str]) -> None:
        self.snapshot = snapshot
        self.user = user
        self.cwd = cwd
        self.env = env


async def built(client: Client, service: BerthService) -> Built | None:
    """Return the template of a sandbox, which is built if there is none. None means a template of the server."""
    if service.image is None and service.dockerfile is None:
        return None
    name = "inspect-" + await anyio.to_thread.run_sync(_digest, service)
    async with concurrency("berth-build", _BUILDS, visible=False), _locks.setdefault(name, anyio.Lock()):
        found = await _find(client, name)
        if found is None:
            await anyio.to_thread.run_sync(_build, service, name)
            found = await _find(client, name)
    if found is None:
        raise RuntimeError(f"The template {name} was built, but is not ready.")
    return found


_locks: dict[str, anyio.Lock] = {}


async def _find(client: Client, name: str) -> Built | None:
    template = await client.template(name)
    for b in (template or {}).get("builds", []):
        made: dict[str, Any] = b.get("berth") or {}
        if b.get("status") == "ready" and made.get("snapshot_id"):
            return Built(
                made["snapshot_id"], made.get("user"), made.get("working_directory"), made.get("environment") or {}
            )
    return None


def _context(service: BerthService) -> Path:
    return Path(service.context) if service.context else Path(str(service.dockerfile)).parent


def _digest(service: BerthService) -> str:
    """Return what tells a template from others: the image, or the Dockerfile with all files of its context."""
    h = hashlib.sha256()
    if service.dockerfile is None:
        h.update(f"image\0{service.image}".encode())
        return h.hexdigest()[:24]
    try:
        h.update(b"dockerfile\0" + Path(service.dockerfile).read_bytes())
    except OSError as e:
        raise Unsupported(f"{service.dockerfile}: {e.strerror}") from e
    top = _context(service)
    for directory, names, files in os.walk(top):
        names[:] = sorted(n for n in names if n not in (".git", "__pycache__", "logs"))
        for file in sorted(files):
            path = Path(directory, file)
            h.update(f"\0{path.relative_to(top)}\0{path.lstat().st_mode}\0".encode())
            h.update(os.readlink(path).encode() if path.is_symlink() else path.read_bytes())
    return h.hexdigest()[:24]


def _build(service: BerthService, name: str) -> None:
    try:
        from e2b import Template
    except ImportError:
        raise Unsupported(
            "Images and Dockerfiles need the extra 'build': pip install 'inspect-berth[build]'."
        ) from None
    url, key = settings()
    if service.dockerfile is None:
        template = Template().from_image(str(service.image))
    else:
        template = Template(file_context_path=_context(service)).from_dockerfile(
            Path(service.dockerfile).read_text()
        )
    Template.build(template, name, api_url=url, api_key=key or "e2b_" + "0" * 40)
