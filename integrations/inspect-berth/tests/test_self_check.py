"""Inspect's own checks of a sandbox, on a server: BERTH_URL."""

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from inspect_berth import BerthSandbox

pytestmark = pytest.mark.skipif(not os.environ.get("BERTH_URL"), reason="BERTH_URL is not set")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def made() -> AsyncIterator[BerthSandbox]:
    sandboxes = await BerthSandbox.sample_init("self check", None, {})
    yield sandboxes["default"].as_type(BerthSandbox)
    await BerthSandbox.sample_cleanup("self check", None, sandboxes, False)


@pytest.fixture
def sandbox_env(made: BerthSandbox) -> BerthSandbox:
    return made
