"""The provider: each sandbox is a container of Berth."""

import errno
import secrets
from logging import getLogger
from pathlib import PurePosixPath
from typing import Any, Literal, NoReturn, overload

import anyio
import httpx
from inspect_ai.util import (
    ComposeConfig,
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel, ValidationError
from typing_extensions import override

from . import _config
from ._build import built
from ._client import BerthError, Client, TooLarge
from ._config import BerthConfig, BerthService

logger = getLogger(__name__)

PREFIX = "inspect/"  # of the names of containers

# Limits of Berth's requests.
_LONGEST = 3600  # seconds of a command
_MOST_OUTPUT = 16 << 20
_MOST_INPUT = 256 << 10  # more is uploaded first

_FILES = 600  # seconds that a script of this module may run
_PINNED = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}  # for these scripts

# Runs a command whose input is a file, which no other command needs.
_WITH_INPUT = 'exec 3<"$1" && /bin/rm -f -- "$1" && shift && exec "$@" <&3 3<&-'

_IS_DIRECTORY = 72

# Writes a file from the standard input, or from another file. Unlike an upload it obeys permissions.
_WRITE = f"""
[ -d "$1" ] && exit {_IS_DIRECTORY}
mkdir -p -- "$(dirname -- "$1")" || exit 1
if [ -n "$2" ]; then exec <"$2" && rm -f -- "$2"; fi
exec cat >"$1"
"""

_READABLE = f"""
[ -d "$1" ] && exit {_IS_DIRECTORY}
: <"$1"
"""


@sandboxenv(name="berth")
class BerthSandbox(SandboxEnvironment):
    """A container of Berth."""

    _running: dict[str, str] = {}  # names of containers that were not deleted, by id

    def __init__(
        self, client: Client, container: str, cwd: str, user: str | None, env: dict[str, str] | None = None
    ) -> None:
        super().__init__()
        self._client = client
        self.container = container
        self._cwd = PurePosixPath(cwd)
        self._user = user
        self._env = env or {}

    @override
    @classmethod
    def config_files(cls) -> list[str]:
        return ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml", "Dockerfile"]

    @override
    @classmethod
    def is_docker_compatible(cls) -> bool:
        return True

    @override
    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        try:
            return BerthConfig(**config)
        except ValidationError:
            return ComposeConfig.model_validate(config)

    @override
    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        if _config.depends_on_sample(config):
            return
        async with Client() as client, anyio.create_task_group() as group:
            for service in _config.load(config, {}).values():
                group.start_soon(built, client, service)

    @override
    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        services = _config.load(config, metadata)
        made: dict[str, SandboxEnvironment] = {}

        async def make(name: str, service: BerthService) -> None:
            made[name] = await cls._make(f"{PREFIX}{task_name}/{name}"[:200], service)

        try:
            async with anyio.create_task_group() as group:
                for name, service in services.items():
                    group.start_soon(make, name, service)
        except BaseException as e:
            with anyio.CancelScope(shield=True):
                await cls._delete(made)
            if isinstance(e, BaseExceptionGroup) and len(e.exceptions) == 1:
                raise e.exceptions[0] from None
            raise
        return {name: made[name] for name in services}

    @classmethod
    async def _make(cls, name: str, service: BerthService) -> "BerthSandbox":
        client = Client()
        try:
            image = await built(client, service)
            body: dict[str, Any] = {
                "name": name,
                "expires_after": {"anchor": "last_active_at", "minutes": service.idle_minutes},
            }
            extension: dict[str, Any] = {"env": service.env} if service.env else {}
            if image is not None:
                extension["snapshot_id"] = image.snapshot
            elif service.template:
                extension["template"] = service.template
            if extension:
                body["berth"] = extension
            if service.memory:
                body["memory_limit"] = service.memory
            if service.network == "none":
                body["network_policy"] = {"type": "disabled"}
            elif service.network == "open":
                body["network_policy"] = {"type": "open"}
            elif service.network:
                body["network_policy"] = {"type": "allowlist", "allowed_domains": list(service.network)}
            with anyio.CancelScope(shield=True):  # else its container would be unknown
                container = await client.create(body)
                cls._running[container] = name
        except BaseException:
            with anyio.CancelScope(shield=True):
                await client.close()
            raise
        cwd = service.cwd or (image and image.cwd) or "/mnt/data"
        user = service.user or (image.user if image else None)
        env = {k: v for k, v in image.env.items() if k not in service.env} if image else {}
        return cls(client, container, cwd, user, env)

    @override
    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        with anyio.CancelScope(shield=True):
            if interrupted:  # task_cleanup deletes them, or keeps them for who wants to look
                for environment in environments.values():
                    await environment.as_type(BerthSandbox)._client.close()
            else:
                await cls._delete(environments)

    @override
    @classmethod
    async def task_cleanup(cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool) -> None:
        left = dict(cls._running)
        cls._running.clear()
        if not left:
            return
        if not cleanup:
            print("Containers of Berth that are left, each ends after its idle time:")
            print("\n".join(f"  berth attach {id}   # {name}" for id, name in left.items()))
            return
        async with Client() as client, anyio.create_task_group() as group:
            for id in left:
                group.start_soon(_try_delete, client, id)

    @override
    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        async with Client() as client, anyio.create_task_group() as group:
            if id is not None:
                group.start_soon(client.delete, id)
                return
            for container in await client.containers():
                if str(container["name"]).startswith(PREFIX):
                    group.start_soon(client.delete, container["id"])

    @classmethod
    async def _delete(cls, environments: dict[str, SandboxEnvironment]) -> None:
        async def one(sandbox: BerthSandbox) -> None:
            if await _try_delete(sandbox._client, sandbox.container):
                cls._running.pop(sandbox.container, None)
            await sandbox._client.close()

        async with anyio.create_task_group() as group:
            for environment in environments.values():
                group.start_soon(one, environment.as_type(BerthSandbox))

    @override
    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        limit = min(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE, _MOST_OUTPUT)
        body: dict[str, Any] = {
            "command": cmd,
            "working_directory": self._path(cwd or "."),
            "env": self._env | (env or {}),
            "timeout_ms": min(timeout or _LONGEST, _LONGEST) * 1000,
            "max_output_bytes": limit,
        }
        if user := user or self._user:
            body["user"] = user
        try:
            if input is not None:
                await self._give_input(body, input)
            answer = await self._client.exec(self.container, body)
        except BerthError as e:
            return _not_started(e)
        except httpx.TransportError as e:
            raise SandboxUnavailableError(f"Berth cannot be reached: {e}") from e
        stdout, stderr = answer.get("stdout") or "", answer.get("stderr") or ""
        outcome = answer["outcome"]
        if outcome["type"] == "timeout":
            error = TimeoutError(f"Command timed out after {body['timeout_ms'] // 1000} seconds")
            error.truncated_output = stdout + stderr  # type: ignore[attr-defined]
            raise error
        if answer["truncated"]:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, stdout + stderr)
        code = answer["exit_code"]
        if code is None:
            code = 128 + int(outcome.get("signal") or 9)
        return ExecResult(code == 0, code, stdout, stderr)

    async def _give_input(self, body: dict[str, Any], input: str | bytes) -> None:
        """Make input part of the request, or of a file if it is large or not text."""
        data = input.encode() if isinstance(input, str) else input
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = None
        if text is not None and len(data) <= _MOST_INPUT:
            body["stdin"] = text
            return
        temporary = await self._upload(data)
        if body.get("user"):  # another user could not open it
            await self._script('chown -- "$2" "$1" 2>/dev/null || chmod 644 -- "$1"', temporary, body["user"], root=True)
        body["command"] = ["/bin/sh", "-c", _WITH_INPUT, "sh", temporary, *body["command"]]

    async def _upload(self, data: bytes) -> str:
        temporary = f"/tmp/.inspect-{secrets.token_hex(16)}"
        await self._client.upload(self.container, temporary, data)
        return temporary

    async def _script(
        self, script: str, *arguments: str, stdin: str | None = None, root: bool = False
    ) -> tuple[int, str]:
        """Run a script, and return its exit code and its errors."""
        body: dict[str, Any] = {
            "command": ["/bin/sh", "-c", script, "sh", *arguments],
            "env": _PINNED,
            "timeout_ms": _FILES * 1000,
            "working_directory": "/",
        }
        if user := "root" if root else self._user:
            body["user"] = user
        if stdin is not None:
            body["stdin"] = stdin
        answer = await self._client.exec(self.container, body)
        if answer["outcome"]["type"] == "timeout":
            raise TimeoutError(f"The files of the sandbox were not ready after {_FILES} seconds")
        return -1 if answer["exit_code"] is None else answer["exit_code"], answer["stderr"]

    def _path(self, path: str) -> str:
        return str(self._cwd / path)

    @override
    async def write_file(self, file: str, contents: str | bytes) -> None:
        path = self._path(file)
        data = contents.encode() if isinstance(contents, str) else contents
        try:
            text = data.decode() if len(data) <= _MOST_INPUT else None
        except UnicodeDecodeError:
            text = None
        try:
            if text is not None:
                code, errors = await self._script(_WRITE, path, "", stdin=text)
            else:
                temporary = await self._upload(data)
                if self._user:
                    await self._script(
                        'chown -- "$2" "$1" 2>/dev/null || chmod 644 -- "$1"', temporary, self._user, root=True
                    )
                code, errors = await self._script(_WRITE, path, temporary)
        except (BerthError, httpx.TransportError) as e:
            raise SandboxUnavailableError(str(e)) from e
        if code != 0:
            _refuse(file, code, errors)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    @override
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        path = self._path(file)
        try:
            code, errors = await self._script(_READABLE, path)
            if code != 0:
                _refuse(file, code, errors)
            data = await self._client.download(
                self.container, path, SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
            )
        except TooLarge:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from None
        except BerthError as e:
            if e.status == 404 and "container" not in e.message.lower():
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", file) from e
            raise SandboxUnavailableError(e.message) from e
        except httpx.TransportError as e:
            raise SandboxUnavailableError(f"Berth cannot be reached: {e}") from e
        return data.decode() if text else data

    @override
    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        return SandboxConnection(type="berth", command=f"berth attach {self.container}", container=self.container)

    @override
    def default_polling_interval(self) -> float:
        return 0.5


async def _try_delete(client: Client, container: str) -> bool:
    try:
        await client.delete(container)
        return True
    except (BerthError, httpx.TransportError) as e:
        logger.warning("Container %s was not deleted, and ends after its idle time: %s", container, e)
        return False


def _not_started(e: BerthError) -> ExecResult[str]:
    """Tell a command that could not start from a sandbox that does not work."""
    if e.status != 400:
        raise SandboxUnavailableError(e.message) from e
    if e.param == "user":
        raise SandboxUserUnsupportedError(e.message) from e
    if "permission denied" in e.message.lower():
        raise PermissionError(errno.EACCES, e.message) from e
    return ExecResult(False, 127, "", e.message)


def _refuse(file: str, code: int, errors: str) -> NoReturn:
    """Raise what Inspect expects for a file that cannot be used."""
    reason = errors.lower()
    if code == _IS_DIRECTORY:
        raise IsADirectoryError(errno.EISDIR, "Is a directory", file)
    if "permission denied" in reason or "read-only" in reason or "operation not permitted" in reason:
        raise PermissionError(errno.EACCES, "Permission denied", file)
    if "no such file" in reason or "not a directory" in reason:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", file)
    raise OSError(errno.EIO, errors.strip() or f"The script ended with {code}", file)


__all__ = ["BerthSandbox"]
