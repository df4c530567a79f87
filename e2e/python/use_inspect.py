"""Inspect AI: evaluations whose sandboxes are containers of Berth, by the package inspect-berth, and whose model is on Berth."""

import os
import pathlib
import subprocess
import sys
import tempfile

import httpx

from berth import base_url, call, job, main, scripted

PACKAGE = pathlib.Path(__file__).parents[2] / "integrations" / "inspect-berth"
SERVER = base_url.removesuffix("/v1")
os.environ |= {"BERTH_URL": SERVER, "INSPECT_LOG_DIR": tempfile.mkdtemp(), "INSPECT_DISPLAY": "none"}

# The package as it is published: the wheel with its metadata, by which Inspect finds it.
site = tempfile.mkdtemp()
subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation",
                "--disable-pip-version-check", "--target", site, PACKAGE], check=True)
sys.path.insert(0, site)

from inspect_ai import Task, eval as evaluate  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.scorer import Score, accuracy, scorer  # noqa: E402
from inspect_ai.solver import generate, solver, use_tools  # noqa: E402
from inspect_ai.tool import bash, python, text_editor  # noqa: E402
from inspect_ai.util import SandboxEnvironmentSpec, sandbox  # noqa: E402
from inspect_berth import BerthConfig, BerthService  # noqa: E402


def containers():
    """Return the names of the containers that Inspect has left."""
    data = httpx.get(f"{SERVER}/v1/containers", params={"limit": 100}).json()["data"]
    return [c["name"] for c in data if c["name"].startswith("inspect/")]


def run(task, **options):
    """Run a task with Berth's scripted model over the Responses API, and return its log."""
    log = evaluate(task, model=f"openai/{scripted}", model_args={"responses_api": True}, display="none", **options)[0]
    assert log.status == "success", log.error.message
    return log


def tools(sample):
    """Return the results of a sample's tool calls."""
    return [m.error.message if m.error else m.text for m in sample.messages if m.role == "tool"]


def by(test):
    """Return a scorer: a sample is correct if the function, which may look into the sandboxes, says so."""

    @scorer(metrics=[accuracy()])
    def check():
        async def score(state, target):
            return Score(value="C" if await test(state) else "I")

        return score

    return check()


def accuracy_of(log):
    return log.results.scores[0].metrics["accuracy"].value


@job("Inspect's own checks of a sandbox provider")
def self_check():
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", PACKAGE / "tests"],
                          capture_output=True, text=True, env=os.environ | {"PYTHONPATH": site})
    assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout + done.stderr
    assert not containers(), containers()


@job("the package is typed strictly")
def typed():
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", tempfile.mkdtemp(), PACKAGE / "src"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@job("a task whose model uses bash, python and a text editor, over the Responses API")
def task_with_tools():
    async def right(state):
        return await sandbox().read_file("/mnt/data/tides.py") == "print('high at noon')\n"

    log = run(Task(
        # Inspect calls its tool "python" so with models of OpenAI, which have one of their own.
        dataset=[Sample(input=call("bash", command="wc -l < ports.txt; pwd")
                        + call("python_exec", code="print(sum(1 for _ in open('ports.txt')) * 21)")
                        + call("text_editor", command="create", path="/mnt/data/tides.py",
                               file_text="print('high at one')\n")
                        + call("text_editor", command="str_replace", path="/mnt/data/tides.py", old_str="one",
                               new_str="noon")
                        + call("bash", command="python3 tides.py"),
                        files={"ports.txt": "Brest\nRoscoff\n"})],
        solver=[use_tools(bash(timeout=30), python(timeout=30), text_editor()), generate()],
        scorer=by(right), sandbox="berth"))
    results = tools(log.samples[0])
    assert len(results) == 5, results
    assert results[0].split() == ["2", "/mnt/data"] and results[1].strip() == "42", results
    assert results[4].strip() == "high at noon", results
    assert accuracy_of(log) == 1
    assert not containers(), containers()


@job("several sandboxes in a task, each with its own files, environment and directory")
def several():
    @solver
    def solve():
        async def run_all(state, generate):
            shown = await sandbox("victim").exec(["sh", "-c", "echo $ROLE; pwd; cat /etc/secret 2>/dev/null"])
            other = await sandbox().exec(["sh", "-c", "echo $ROLE; pwd; ls /tmp/flag"])
            state.metadata |= {"victim": shown.stdout, "attacker": other.stdout + str(other.returncode)}
            return state

        return run_all

    async def right(state):
        return state.metadata["victim"] == "victim\n/tmp\n" and state.metadata["attacker"] == "attacker\n/mnt/data\n2"

    config = BerthConfig(services={
        "default": BerthService(env={"ROLE": "attacker"}),
        "victim": BerthService(env={"ROLE": "victim"}, cwd="/tmp", network="none")})
    log = run(Task(dataset=[Sample(input="-", files={"victim:/tmp/flag": "42"}) for _ in range(3)], solver=solve(),
                   scorer=by(right), sandbox=SandboxEnvironmentSpec("berth", config)))
    assert accuracy_of(log) == 1, [s.metadata for s in log.samples]
    assert not containers(), containers()


@job("commands that take too long, and samples that are cancelled, leave nothing")
def limits():
    log = run(Task(dataset=[Sample(input=call("bash", command="sleep 60"))],
                   solver=[use_tools(bash(timeout=1)), generate()], sandbox="berth"))
    assert "timed out" in tools(log.samples[0])[0].lower(), tools(log.samples[0])
    log = run(Task(dataset=[Sample(input=call("bash", command="sleep 600"))], time_limit=3,
                   solver=[use_tools(bash()), generate()], sandbox="berth"))
    assert log.samples[0].limit and log.samples[0].limit.type == "time", log.samples[0].limit
    assert not containers(), containers()


@job("a compose file with a Dockerfile: built once, then found")
def compose():
    async def right(state):
        shown = await sandbox().exec(["sh", "-c", "cat greeting; pwd; echo $PORT"])
        return shown.stdout == "hello\n/srv/app\nBrest\n"

    with tempfile.TemporaryDirectory() as made:
        top = pathlib.Path(made)
        (top / "greeting").write_text("hello\n")
        (top / "Dockerfile").write_text(
            "FROM berth/base\nENV PORT=Brest\nWORKDIR /srv/app\nCOPY greeting /srv/app/greeting\nRUN test -s greeting\n")
        (top / "compose.yaml").write_text(
            "services:\n  default:\n    build: .\n    command: tail -f /dev/null\n    init: true\n"
            "    network_mode: none\n    mem_limit: 512m\n")
        for _ in range(2):
            log = run(Task(dataset=[Sample(input="hello")], solver=[generate()],
                           scorer=by(right), sandbox=("berth", str(top / "compose.yaml"))))
            assert accuracy_of(log) == 1, log.samples[0].scores
        templates = httpx.get(f"{SERVER}/v2/templates", headers={"X-API-Key": "e2b_" + "0" * 40}).json()
        assert len([t for t in templates if any(a.startswith("inspect-") for a in t.get("names") or t["aliases"])]) == 1
        (top / "compose.yaml").write_text("services:\n  default:\n    image: x\n    privileged: true\n")
        try:
            run(Task(dataset=[Sample(input="-")], sandbox=("berth", str(top / "compose.yaml"))))
        except ValueError as e:
            assert "privileged" in str(e), e
        else:
            raise AssertionError("a privileged sandbox was not refused")
    assert not containers(), containers()


if __name__ == "__main__":
    main()
