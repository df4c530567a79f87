"""Haystack: an agent whose model is on Berth, with the tools of e2b-haystack in one sandbox of Berth."""

import os

os.environ.setdefault("E2B_API_KEY", "e2b_" + "0" * 40)

from e2b import Sandbox  # noqa: E402
from haystack.components.agents import Agent  # noqa: E402
from haystack.components.generators.chat import OpenAIChatGenerator  # noqa: E402
from haystack.dataclasses import ChatMessage  # noqa: E402
from haystack_integrations.tools.e2b import E2BToolset  # noqa: E402

from berth import base_url, call, job, main, scripted  # noqa: E402


@job("Agent with E2BToolset: a file written, a command on it, the result read, one sandbox")
def toolset():
    tools = E2BToolset(timeout=60, environment_vars={"PORT": "Brest"})
    agent = Agent(chat_generator=OpenAIChatGenerator(model=scripted, api_base_url=base_url), tools=tools)
    try:
        agent.warm_up()
        result = agent.run(messages=[ChatMessage.from_user(
            call("write_file", path="/home/user/hours.txt", content="11\n4\n")
            + call("run_bash_command", command="sort -n hours.txt > sorted.txt; echo $PORT; exit 3")
            + call("read_file", path="/home/user/sorted.txt")
            + call("list_directory", path="/home/user"))])
    finally:
        tools.close()
    results = [m.tool_call_result.result for m in result["messages"] if m.tool_call_result]
    assert len(results) == 4, results
    assert "exit_code: 3" in results[1] and "Brest" in results[1], results[1]
    assert "4\n11" in results[2], results[2]
    assert "sorted.txt" in results[3], results[3]
    assert not Sandbox.list().next_items(), "a sandbox is left"


if __name__ == "__main__":
    main()
