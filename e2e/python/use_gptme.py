"""gptme: its command line works in a folder, with a model on Berth over Chat Completions."""

import os
import subprocess
import sys
import tempfile

from berth import block, job, main, reciter

program = os.path.join(os.path.dirname(sys.executable), "gptme")


def gptme(folder, *args):
    done = subprocess.run([program, "--non-interactive", "--model", f"local/{reciter}", *args], cwd=folder, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=240)
    assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])


@job("two commands by native function calls")
def commands():
    with tempfile.TemporaryDirectory() as folder:
        gptme(folder, "--tool-format", "tool", block("shell", command="echo 41 > n.txt")
              + block("shell", command="echo $(($(cat n.txt) + 1)) > m.txt; cat m.txt"))
        assert open(os.path.join(folder, "m.txt")).read() == "42\n"


main()
