"""Starts a long command in the background and waits for its end, through restarts of the server."""

import os
import time

import openai

steps = int(os.environ.get("STEPS", "10"))
TASK = f"Run a shell loop that appends 'step N' to steps.txt for N from 1 to {steps}, one each second. Then print the file."

# What the model "scripted" runs. A language model gets the task only.
STEPS = f"""
```sh
for n in $(seq {steps}); do echo "step $n" >>steps.txt; sleep 1; done; cat steps.txt
```
"""

model = os.environ.get("BERTH_MODEL", "scripted")
client = openai.OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
    max_retries=0,
)

response = client.responses.create(
    model=model,
    input=TASK + STEPS if model == "scripted" else TASK,
    background=True,
    tools=[{"type": "shell", "environment": {"type": "container_auto"}}],
)
print(response.id, "runs; restart the server now", flush=True)

away = False
while response.status in ("queued", "in_progress"):
    time.sleep(0.2)
    try:
        response = client.responses.retrieve(response.id)
        if away:
            print("the server is back", flush=True)
        away = False
    except (openai.APIConnectionError, openai.InternalServerError):
        if not away:
            print("the server is away", flush=True)
        away = True

printed = "".join(o.stdout for item in response.output if item.type == "shell_call_output" for o in item.output)
wanted = [f"step {n}" for n in range(1, steps + 1)]
assert printed.split("\n")[-steps - 1 : -1] == wanted, f"the command printed {printed!r}"
print(f"{response.status}: {steps} steps, each once")
client.containers.delete(response.tools[0].environment.container_id)
