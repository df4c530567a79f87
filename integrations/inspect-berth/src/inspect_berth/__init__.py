"""Sandboxes of Berth for Inspect AI: sandbox="berth"."""

from ._config import BerthConfig, BerthService
from ._sandbox import BerthSandbox

__all__ = ["BerthConfig", "BerthSandbox", "BerthService"]
