"""E2B's client for desktops, with Berth in place of E2B."""

import os
import struct
import time

os.environ.setdefault("E2B_API_KEY", "e2b_" + "0" * 40)

from e2b import CommandExitException, TimeoutException  # noqa: E402
from e2b_desktop import Sandbox  # noqa: E402

from berth import job, main  # noqa: E402


def create(**options):
    """Start a desktop. The client allows it ten seconds, which a busy machine may exceed."""
    for attempt in range(5):
        try:
            return Sandbox.create(timeout=300, **options)
        except TimeoutException:
            if attempt == 4:
                raise


def until(ok):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if ok():
            return
    raise AssertionError("waited in vain")


@job("a desktop with mouse, keyboard and screenshots")
def desktop():
    d = create(resolution=(800, 600))
    assert d.get_screen_size() == (800, 600)
    d.move_mouse(123, 45)
    assert d.get_cursor_position() == (123, 45)
    d.double_click(400, 300)
    d.drag((10, 10), (60, 70))
    d.scroll("up", 2)
    shot = bytes(d.screenshot())
    assert shot[1:4] == b"PNG" and struct.unpack(">II", shot[16:24]) == (800, 600), shot[:24]
    d.launch("debian-xterm")

    def windows():
        try:
            return [w for w in d.get_application_windows("xterm") if w]
        except CommandExitException:
            return []

    until(windows)
    assert d.get_window_title(windows()[0])

    def typed():
        d.write("touch /tmp/typed")
        d.press("enter")
        return d.files.exists("/tmp/typed")

    until(typed)
    d.kill()


@job("a stream of the desktop")
def stream():
    d = create()
    d.stream.start(require_auth=True)
    assert "view_only=true" in d.stream.get_url(auth_key=d.stream.get_auth_key(), view_only=True)
    assert int(d.commands.run("curl -s http://127.0.0.1:6080/vnc.html | grep -c noVNC").stdout) > 0
    d.stream.stop()
    d.kill()


if __name__ == "__main__":
    main()
