"""The configuration of sandboxes: a model, a compose file or a Dockerfile."""

import os
import re
from pathlib import Path
from typing import Any, Literal

import yaml
from inspect_ai.util import ComposeConfig, ComposeService, is_compose_yaml, is_dockerfile
from pydantic import BaseModel, ConfigDict, Field, ValidationError

Memory = Literal["1g", "4g", "16g", "64g"]


class BerthService(BaseModel, frozen=True):
    """A sandbox."""

    model_config = ConfigDict(extra="forbid")

    template: str | None = None
    """Template of the server. None is its default one."""

    image: str | None = None
    """Image of a registry. It needs the extra "build"."""

    dockerfile: str | None = None
    """Path of a Dockerfile, whose directory is the context unless there is another. It needs the extra "build"."""

    context: str | None = None
    """Directory from which the Dockerfile copies."""

    memory: Memory | None = None
    """Limit of memory. None is that of the server."""

    network: Literal["none", "open"] | tuple[str, ...] | None = None
    """What the sandbox may reach: nothing, all that the server allows, or some hosts. None is what the server says."""

    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of all commands."""

    cwd: str | None = None
    """Working directory. None is that of the image, or /mnt/data."""

    user: str | None = None
    """User of commands. None is that of the image, or "user"."""

    idle_minutes: int = Field(default=120, ge=1)
    """The sandbox ends after this time without use, if its evaluation does not end it."""


class BerthConfig(BaseModel, frozen=True):
    """The sandboxes of a sample, by name. The first is the default one, unless one is named "default"."""

    model_config = ConfigDict(extra="forbid")

    services: dict[str, BerthService] = Field(default_factory=lambda: {"default": BerthService()}, min_length=1)

    def __hash__(self) -> int:
        return hash(self.model_dump_json())


class Unsupported(ValueError):
    """A configuration asks for what Berth does not have."""


# Fields of compose files without effect here, or with one that each sandbox has anyway.
_ACCEPTED = {
    "image", "build", "environment", "working_dir", "user", "mem_limit", "deploy", "network_mode", "init", "command",
    "stdin_open", "tty", "restart", "depends_on", "hostname", "stop_grace_period", "cpus", "x_default", "healthcheck",
    "pull_policy", "platform", "expose", "cap_drop", "mem_reservation", "memswap_limit",
}  # fmt: skip

# Commands that only keep a container alive.
_KEEPALIVE = re.compile(r"^(/bin/|/usr/bin/)?(tail -f /dev/null|sleep (infinity|inf|\d+d?)|cat)$")

_VARIABLE = re.compile(r"\$\{(\w+)(?::?-([^}]*))?\}")


def load(config: BaseModel | str | None, metadata: dict[str, Any]) -> dict[str, BerthService]:
    """Return the sandboxes of a sample, the default one first."""
    if config is None:
        return {"default": BerthService()}
    if isinstance(config, BerthConfig):
        return _default_first(dict(config.services), set())
    if isinstance(config, BerthService):
        return {"default": config}
    if isinstance(config, ComposeConfig):
        return _of_compose(config, Path.cwd())
    if isinstance(config, str) and is_dockerfile(config):
        return {"default": BerthService(dockerfile=str(Path(config).resolve()), network="none")}
    if isinstance(config, str) and is_compose_yaml(config):
        path = Path(config).resolve()
        return _of_compose(_parse(path, metadata), path.parent)
    raise Unsupported(f"Not a configuration of Berth's sandboxes: {config!r}.")


def depends_on_sample(config: BaseModel | str | None) -> bool:
    """Whether a compose file names metadata of the sample."""
    return isinstance(config, str) and is_compose_yaml(config) and "SAMPLE_METADATA_" in Path(config).read_text()


def _parse(path: Path, metadata: dict[str, Any]) -> ComposeConfig:
    values = dict(os.environ)
    for key, value in metadata.items():
        values["SAMPLE_METADATA_" + key.replace(" ", "_").upper()] = str(value)
    text = _VARIABLE.sub(lambda m: values.get(m[1], m[2] or ""), path.read_text())
    try:
        return ComposeConfig.model_validate(yaml.safe_load(text))
    except (yaml.YAMLError, ValidationError) as e:
        raise Unsupported(f"{path}: {e}") from e


def _of_compose(config: ComposeConfig, base: Path) -> dict[str, BerthService]:
    if config.volumes or config.networks:
        raise Unsupported("Berth's sandboxes share neither volumes nor networks of a compose file.")
    services = {name: _service(name, s, base) for name, s in config.services.items()}
    return _default_first(services, {name for name, s in config.services.items() if s.x_default})


def _default_first(services: dict[str, BerthService], marked: set[str]) -> dict[str, BerthService]:
    first = next((n for n in services if n in marked), "default" if "default" in services else next(iter(services)))
    return {first: services[first]} | services


def _service(name: str, s: ComposeService, base: Path) -> BerthService:
    named = {k for k in s.model_fields_set if getattr(s, k, None) not in (None, [], {})}
    unknown = sorted(k.replace("_", "-") if k.startswith("x_") else k
                     for k in named - _ACCEPTED if not k.startswith("x-"))  # fmt: skip
    if unknown:
        raise Unsupported(f"Service '{name}': Berth's sandboxes do not have {', '.join(unknown)}.")
    command = " ".join(s.command) if isinstance(s.command, list) else s.command
    if command and not _KEEPALIVE.match(command.strip()):
        raise Unsupported(f"Service '{name}': a sandbox has no command of its own; start it from the task.")
    fields: dict[str, Any] = dict(s.extensions.get("x-berth") or {})
    if isinstance(fields.get("network"), list):
        fields["network"] = tuple(fields["network"])
    fields.setdefault("network", "none" if s.network_mode == "none" else None)
    if s.network_mode not in (None, "none", "bridge"):
        raise Unsupported(f"Service '{name}': network_mode is 'none' or 'bridge'.")
    if isinstance(s.build, str):
        fields |= {"context": str(base / s.build), "dockerfile": str(base / s.build / "Dockerfile")}
    elif s.build is not None:
        context = base / (s.build.context or ".")
        fields |= {"context": str(context), "dockerfile": str(context / (s.build.dockerfile or "Dockerfile"))}
    elif s.image:
        fields["image"] = s.image
    if memory := _memory(s):
        fields.setdefault("memory", memory)
    fields["env"] = _environment(s) | fields.get("env", {})
    try:
        return BerthService(**{"cwd": s.working_dir, "user": s.user} | fields)
    except ValidationError as e:
        raise Unsupported(f"Service '{name}': {e}") from e


def _environment(s: ComposeService) -> dict[str, str]:
    if isinstance(s.environment, dict):
        return {k: os.environ.get(k, "") if v is None else v for k, v in s.environment.items()}
    pairs = (entry.partition("=") for entry in s.environment or [])
    return {k: v if eq else os.environ.get(k, "") for k, eq, v in pairs}


def _memory(s: ComposeService) -> Memory | None:
    limits = s.deploy and s.deploy.resources and s.deploy.resources.limits
    text = s.mem_limit or (limits.memory if limits else None)
    if not text:
        return None
    m = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bkmg])?(?:i?b)?", text.strip().lower())
    if not m:
        raise Unsupported(f"Not a size of memory: {text}.")
    size = float(m[1]) * {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[m[2] or "b"]
    sizes: list[tuple[int, Memory]] = [(1, "1g"), (4, "4g"), (16, "16g"), (64, "64g")]
    for gigabytes, name in sizes:
        if size <= gigabytes << 30:
            return name
    raise Unsupported(f"A sandbox has at most 64 GB of memory, not {text}.")
