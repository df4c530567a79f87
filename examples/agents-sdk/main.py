"""Runs an agent with a hosted shell twice, the second time in the container of the first."""

import asyncio
import os

from agents import Agent, Runner, ShellTool, set_default_openai_client, set_tracing_disabled
from openai import AsyncOpenAI

model = os.environ.get("BERTH_MODEL", "scripted")
client = AsyncOpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
)
set_default_openai_client(client, use_for_tracing=False)
set_tracing_disabled(True)


def prompt(task, command):
    """Return what the model gets: "scripted" runs the command, a language model gets the task only."""
    return f"{task}\n```sh\n{command}\n```" if model == "scripted" else task


async def main():
    agent = Agent(name="Clerk", model=model, tools=[ShellTool(environment={"type": "container_auto"})])
    first = await Runner.run(agent, prompt("Store 6*7 in the file n, and print it.", "echo $((6*7)) | tee n"))
    print("shell:", first.final_output)
    second = await Runner.run(agent, prompt("Add one to the number in n.", "n=$(cat n); echo $((n + 1)) | tee n"), previous_response_id=first.last_response_id)
    print("next:", second.final_output)
    assert "42" in first.final_output and "43" in second.final_output


asyncio.run(main())
