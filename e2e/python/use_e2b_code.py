"""E2B's code interpreter client for Python, with Berth in place of E2B."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("E2B_API_KEY", "e2b_" + "0" * 40)

from e2b import NotFoundException, TimeoutException  # noqa: E402
from e2b_code_interpreter import AsyncSandbox, Sandbox  # noqa: E402

from berth import job, main  # noqa: E402


@job("code with results, logs and errors")
def code():
    with Sandbox.create(timeout=300) as s:
        lines = []
        r = s.run_code("print('out'); x = 41; x + 1", on_stdout=lambda o: lines.append(o.line))
        assert (r.text, "".join(lines)) == ("42", "out\n"), r  # a kernel that is stopped in between sends two pieces
        assert s.run_code("x").text == "41"
        r = s.run_code("int('x')")
        assert r.error.name == "ValueError" and "int('x')" in r.error.traceback, r.error
        assert s.run_code("import os; os.environ['A']", envs={"A": "b"}).text == "b"
        assert s.run_code("os.environ.get('A') is None").text == "True"


@job("typed charts")
def charts():
    with Sandbox.create(timeout=300) as s:
        r = s.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4], label='a')\nplt.show()")
        chart = r.results[0].chart
        assert r.results[0].png and chart.type == "line" and chart.elements[0].points == [(1, 3), (2, 4)], r
        r = s.run_code("plt.bar(['x'], [1])\nplt.show()")
        assert r.results[0].chart.elements[0].label == "x", r


@job("contexts")
def contexts():
    with Sandbox.create(timeout=300) as s:
        c = s.create_code_context(cwd="/tmp")
        assert s.run_code("import os; x = os.getcwd(); x", context=c).text == "/tmp"
        assert s.list_code_contexts()[0].id != c.id  # the default context of Python
        assert s.list_code_contexts()[-1].id == c.id
        s.restart_code_context(c)
        assert s.run_code("x", context=c).error.name == "NameError"
        s.remove_code_context(c)
        try:
            s.run_code("x", context=c)
            raise AssertionError("no error")
        except NotFoundException:
            pass


@job("code of a sandbox that is killed or paused")
def killed():
    def ends(run):
        try:
            run()
            raise AssertionError("no error")
        except TimeoutException as e:
            assert "killed while the request was in progress" in str(e), e

    wait = "import time; time.sleep(1000)"
    for end in (Sandbox.kill, Sandbox.pause):
        s = Sandbox.create(timeout=300)
        ends(lambda: s.run_code("print('runs', flush=True); " + wait, on_stdout=lambda _: end(s)))
        s.kill()

    with Sandbox.create(timeout=300) as s, ThreadPoolExecutor() as pool:  # before any output
        running = pool.submit(s.run_code, "open('/tmp/runs', 'w').close(); " + wait)
        while not s.files.exists("/tmp/runs"):
            assert not running.done(), running.result()
        s.kill()
        ends(running.result)
        try:
            s.run_code("1")
            raise AssertionError("no error")
        except TimeoutException as e:
            assert "The sandbox was not found" in str(e), e


@job("the asynchronous client")
def asynchronous():
    async def run():
        s = await AsyncSandbox.create(timeout=300)
        assert (await s.run_code("1 + 1")).text == "2"
        await s.kill()

    asyncio.run(run())


if __name__ == "__main__":
    main()
