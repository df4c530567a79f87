"""aider: it changes a repository, with a model on Berth over Chat Completions."""

import os
import subprocess
import sys
import tempfile

from berth import api_key, base_url, job, main, reciter

program = os.path.join(os.path.dirname(sys.executable), "aider")


def git(folder, *args):
    return subprocess.run(["git", "-C", folder, "-c", "user.name=mate", "-c", "user.email=mate@example.com", *args],
                          check=True, capture_output=True, text=True).stdout


@job("a file edited by a search and a replacement, its test run, the change committed")
def edit():
    with tempfile.TemporaryDirectory() as folder:
        git(folder, "init", "--quiet")
        hours = os.path.join(folder, "hours.py")
        with open(hours, "w") as f:
            f.write("print(40 + 1)\n")
        git(folder, "add", "hours.py")
        git(folder, "commit", "--quiet", "--message", "start")
        task = """Say only this: hours.py
```
<<<<<<< SEARCH
print(40 + 1)
=======
print(40 + 2)
>>>>>>> REPLACE
```"""
        done = subprocess.run(
            [program, "--model", f"openai/{reciter}", "--edit-format", "diff", "--yes-always", "--no-gitignore", "--no-check-update",
             "--no-show-model-warnings", "--analytics-disable", "--map-tokens", "0", "--auto-test",
             "--test-cmd", f"{sys.executable} hours.py > m.txt", "--message", task, "hours.py"],
            cwd=folder, text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=240,
            env={**os.environ, "OPENAI_API_BASE": base_url, "OPENAI_API_KEY": api_key})
        assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        assert open(hours).read() == "print(40 + 2)\n", (done.stdout[-2000:], done.stderr[-2000:])
        assert open(os.path.join(folder, "m.txt")).read() == "42\n", done.stdout[-2000:]
        assert len(git(folder, "log", "--oneline").splitlines()) == 2, git(folder, "log")


main()
