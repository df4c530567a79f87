"""What the programs in this directory share.

Each program uses one client as its package ships it, against the server at
OPENAI_BASE_URL. Its jobs have a title each, which docs/clients.md lists, and run
in the order of the file. A program prints "ok TITLE" for each job that passed,
and exits with 1 if one failed.
"""

import asyncio
import inspect
import json
import os
import sys
import traceback

base_url = os.environ["OPENAI_BASE_URL"]
api_key = os.environ["OPENAI_API_KEY"]

# The model inside Berth that recites: each ```sh and ```json NAME block of the last
# user message is a call, one turn each; then it quotes what each call returned.
scripted = "scripted"

# The model behind Berth, which speaks Chat Completions and recites too: each block
# of the last user message is a call of the function that it names; then it says
# what the last call returned. Text after "Say only this: " is its whole answer.
reciter = "reciter"

# Models whose upstream has tools of its own: images and a computer. Each calls its tool once
# after each message of the user.
drawer = "gpt-5.4"
clicker = "computer-use-preview"

# What the server may reach: an MCP server with the tool "tide", and a site that its search
# service finds.
mcp_url = os.environ.get("BERTH_TEST_MCP")
site_url = os.environ.get("BERTH_TEST_SITE")

# An embedding model behind Berth: its vectors are the number of a text's characters and of
# its words.
embedder = "embedder"

auto = {"type": "shell", "environment": {"type": "container_auto"}}


def sh(*commands):
    """Return a message that has the scripted model run commands, one turn each."""
    return "\n".join(f"```sh\n{c}\n```" for c in commands)


def cells(*code):
    """Return a message that has the scripted model run Python, one call each."""
    return "\n".join(f"```python\n{c}\n```" for c in code)


def call(name, /, **arguments):
    """Return a message that has the scripted model call a function."""
    return f"```json {name}\n{json.dumps(arguments)}\n```\n"


def block(name, /, **arguments):
    """Return a message that has the reciter call a function."""
    return f"```{name}\n{json.dumps(arguments)}\n```\n"


def outputs(response):
    """Return the outputs of a response's shell calls, in order."""
    return [o for item in response.output if item.type == "shell_call_output" for o in item.output]


def items(response, type):
    """Return the items of a response that have a type."""
    return [item for item in response.output if item.type == type]


_jobs = []


def job(title):
    """Register a function, plain or async, as a job."""

    def register(function):
        _jobs.append((title, function))
        return function

    return register


def report(text):
    """Write lines in one piece: frameworks print from other threads."""
    sys.stdout.flush()
    os.write(1, f"\n{text}\n".encode())


def main():
    """Run the jobs, the async ones on one loop."""
    failed = False
    with asyncio.Runner() as loop:
        for title, function in _jobs:
            try:
                if inspect.iscoroutinefunction(function):
                    loop.run(function())
                else:
                    function()
                report(f"ok {title}")
            except Exception:
                failed = True
                report(f"failed {title}\n{traceback.format_exc(limit=-8)}")
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: at the interpreter's end, threads of pyqwest, on which E2B's SDK depends, sometimes abort the process
    # (https://github.com/curioswitch/pyqwest/issues/164).
    os._exit(1 if failed else 0)
