"""Harbor, which evaluates agents, with its tasks in sandboxes of Berth: harbor run -e e2b."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("E2B_API_KEY", "e2b_" + "0" * 40)

from e2b import Sandbox  # noqa: E402

from berth import job, main  # noqa: E402

TASKS = pathlib.Path(__file__).parent / "harbor"
NAMES = sorted(p.name for p in TASKS.iterdir())


def run(agent, attempts):
    """Runs all tasks with an agent that needs no model, and returns the rewards of each task."""
    with tempfile.TemporaryDirectory() as out:
        command = [pathlib.Path(sys.executable).parent / "harbor", "run", "-p", TASKS, "-e", "e2b", "-a", agent, "-k",
                   str(attempts), "-n", "5", "-o", out, "--job-name", "job", "--yes", "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        trials = [json.loads(p.read_text()) for p in pathlib.Path(out, "job").glob("*/result.json")]
    assert len(trials) == len(NAMES) * attempts, (len(trials), done.stdout)
    for trial in trials:
        assert trial["exception_info"] is None, trial["exception_info"]
    return {name: [t["verifier_result"]["rewards"]["reward"] for t in trials if t["task_name"].endswith(name)]
            for name in NAMES}


@job("three tasks with Dockerfiles, three attempts at each, five at a time")
def oracle():
    got = run("oracle", attempts=3)
    assert got == {name: [1, 1, 1] for name in NAMES}, got
    assert not Sandbox.list().next_items(), "sandboxes are left"


@job("an agent that does nothing fails, in the templates of the first job")
def nothing():
    got = run("nop", attempts=1)
    assert got == {name: [0] for name in NAMES}, got


if __name__ == "__main__":
    main()
