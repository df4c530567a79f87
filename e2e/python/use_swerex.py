"""SWE-ReX: its RemoteRuntime with containers of Berth."""

import asyncio
import os
import pathlib
import tempfile

import httpx
from swerex.deployment.remote import RemoteDeployment
from swerex.exceptions import (
    BashIncorrectSyntaxError, CommandTimeoutError, NonZeroExitCodeError, SessionDoesNotExistError, SessionExistsError,
)
from swerex.runtime.abstract import (
    BashAction, BashInterruptAction, CloseBashSessionRequest, Command, CreateBashSessionRequest, ReadFileRequest,
    UploadRequest, WriteFileRequest,
)
from swerex.runtime.remote import RemoteRuntime

from berth import base_url, job, main

SERVER = base_url.removesuffix("/v1")


class Box:
    """A container, and a runtime in it."""

    def __init__(self):
        self.id = httpx.post(f"{SERVER}/v1/containers", json={"name": "swerex"}, timeout=60).json()["id"]
        self.runtime = RemoteRuntime(host=f"{SERVER}/swerex/{self.id}", auth_token="any")

    async def __aenter__(self):
        # Not wait_until_alive, which blocks the event loop that others wait in.
        assert await self.runtime.is_alive(timeout=60)
        return self.runtime

    async def __aexit__(self, *_):
        await self.runtime.close()
        httpx.delete(f"{SERVER}/v1/containers/{self.id}")


async def raises(kind, coroutine):
    """Return the exception of a kind that a call must raise."""
    try:
        await coroutine
    except kind as e:
        return e
    raise AssertionError(f"not raised: {kind}")


async def run(runtime, command, **options):
    return await runtime.run_in_session(BashAction(command=command, **options))


@job("sessions: variables, functions, directories and exit codes stay")
async def sessions():
    async with Box() as r:
        await r.create_session(CreateBashSessionRequest())
        await raises(SessionExistsError, r.create_session(CreateBashSessionRequest()))
        got = await run(r, "echo 'hello world'")
        assert (got.output, got.exit_code) == ("hello world\n", 0), got
        await run(r, "cd /tmp && export PORT=Brest && tide() { echo high at $1; }")
        got = await run(r, "pwd; echo $PORT; tide noon")
        assert got.output.split("\n") == ["/tmp", "Brest", "high at noon", ""], got
        got = await run(r, "cat <<'END' > note\na $b\n`c`\nEND\ncat note; printf done")
        assert got.output == "a $b\n`c`\ndone", got
        got = await run(r, "echo a\n\n# a comment\necho b; false", check="silent")
        assert (got.output, got.exit_code) == ("a\nb\n", 1), got
        assert (await run(r, "false", check="ignore")).exit_code is None
        e = await raises(NonZeroExitCodeError, run(r, "exit_() { return 7; }; exit_", error_msg="no tide"))
        assert "no tide" in str(e) and "7" in str(e), e
        e = await raises(BashIncorrectSyntaxError, run(r, "for i in; do"))
        assert e.extra_info["bash_stderr"], e.extra_info
        assert (await run(r, "echo still here")).output == "still here\n"
        await raises(SessionDoesNotExistError, run(r, "true", session="other"))
        await r.create_session(CreateBashSessionRequest(session="other"))
        assert (await run(r, "echo $PORT.", session="other")).output == ".\n"
        await r.close_session(CloseBashSessionRequest(session="other"))
        await raises(SessionDoesNotExistError, run(r, "true", session="other"))


@job("sessions: files that are sourced, long commands, much output, bytes that are not text")
async def sources():
    async with Box() as r:
        await r.write_file(WriteFileRequest(path="/tmp/rc", content="export A=1; PS1='$ '; echo from rc\n"))
        made = await r.create_session(CreateBashSessionRequest(startup_source=["/tmp/rc"]))
        assert "from rc" in made.output, made
        assert (await run(r, "echo $A")).output == "1\n"
        long = "x" * 50_000
        assert (await run(r, f"echo '{long}' | wc -c")).output == "50001\n"
        got = await run(r, "seq 100000")
        assert got.output.startswith("1\n2\n") and got.output.endswith("\n100000\n"), got.output[-100:]
        assert "a" in (await run(r, "printf 'a\\377b\\n'")).output


@job("sessions: timeouts, interrupts, programs with a prompt of their own")
async def interactive():
    async with Box() as r:
        await r.create_session(CreateBashSessionRequest())
        await raises(CommandTimeoutError, run(r, "echo begun; sleep 600", timeout=1))
        await r.run_in_session(BashInterruptAction(timeout=5))
        assert (await run(r, "echo ready")).output == "ready\n"
        await raises(CommandTimeoutError, run(r, "trap '' INT; sleep 600", timeout=1))
        await r.run_in_session(BashInterruptAction(timeout=1, n_retry=1))
        assert (await run(r, "echo again")).output == "again\n"
        await run(r, "python3 -q", is_interactive_command=True, expect=[">>> "], timeout=30)
        got = await run(r, "print(6*7)", is_interactive_command=True, expect=[">>> "], timeout=30)
        assert "42" in got.output and got.expect_string == ">>> ", got
        await run(r, "exit()", is_interactive_quit=True, timeout=30)
        assert (await run(r, "echo left")).output == "left\n"


@job("commands, files and uploads")
async def commands():
    async with Box() as r:
        got = await r.execute(Command(command=["printf", "%s|", "a b", "c"]))
        assert (got.stdout, got.stderr, got.exit_code) == ("a b|c|", "", 0), got
        got = await r.execute(Command(command="echo out; echo err >&2; exit 3", shell=True, env={"A": "1"}, cwd="/tmp"))
        assert (got.stdout, got.stderr, got.exit_code) == ("out\n", "err\n", 3), got
        got = await r.execute(Command(command="echo out; echo err >&2", shell=True, merge_output_streams=True))
        assert (got.stdout, got.stderr) == ("out\nerr\n", ""), got
        await raises(NonZeroExitCodeError, r.execute(Command(command="false", shell=True, check=True)))
        await raises(CommandTimeoutError, r.execute(Command(command=["sleep", "600"], timeout=0.5)))
        await raises(FileNotFoundError, r.execute(Command(command=["nonesuch"])))
        await r.write_file(WriteFileRequest(path="/tmp/a/b/note", content="héllo\n"))
        assert (await r.read_file(ReadFileRequest(path="/tmp/a/b/note"))).content == "héllo\n"
        await raises(FileNotFoundError, r.read_file(ReadFileRequest(path="/tmp/none")))
        await r.execute(Command(command="printf 'a\\377' > /tmp/raw", shell=True))
        got = await r.read_file(ReadFileRequest(path="/tmp/raw", errors="backslashreplace"))
        assert got.content == "a\\xff", got
        with tempfile.TemporaryDirectory() as made:
            top = pathlib.Path(made)
            (top / "sub").mkdir()
            (top / "sub" / "x").write_bytes(os.urandom(100_000))
            (top / "one").write_text("1")
            await r.upload(UploadRequest(source_path=str(top), target_path="/tmp/up/all"))
            await r.upload(UploadRequest(source_path=str(top / "one"), target_path="/tmp/up/one"))
        got = await r.execute(Command(command="wc -c < /tmp/up/all/sub/x; cat /tmp/up/one", shell=True))
        assert got.stdout == "100000\n1", got


@job("RemoteDeployment, and twenty sessions in four containers")
async def many():
    async def one(number):
        async with Box() as r:
            async def session(name):
                await r.create_session(CreateBashSessionRequest(session=name))
                await run(r, f"N={name}", session=name)
                return (await run(r, "echo $N", session=name)).output.strip()

            assert await asyncio.gather(*(session(f"s{number}-{i}") for i in range(5))) == [
                f"s{number}-{i}" for i in range(5)]

    await asyncio.gather(*(one(i) for i in range(4)))
    box = Box()
    deployment = RemoteDeployment(host=f"{SERVER}/swerex/{box.id}", auth_token="any")
    await deployment.start()
    await deployment.runtime.wait_until_alive(timeout=60)
    assert (await deployment.runtime.execute(Command(command=["echo", "hi"]))).stdout == "hi\n"
    await deployment.stop()
    httpx.delete(f"{SERVER}/v1/containers/{box.id}")
    assert not await box.runtime.is_alive()


if __name__ == "__main__":
    main()
