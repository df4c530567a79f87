"""What Inspect loads by the entry point of this package."""

from ._sandbox import BerthSandbox

__all__ = ["BerthSandbox"]
