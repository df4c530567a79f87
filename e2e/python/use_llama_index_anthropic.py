"""LlamaIndex's model of Anthropic, with Berth's Messages API."""

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.llms.anthropic import Anthropic

from berth import base_url, block, job, main

# It knows the names of Anthropic's models only. Behind this one is the reciter.
llm = Anthropic(model="claude-sonnet-4-5-20250929", base_url=base_url.removesuffix("/v1"), api_key="none", max_tokens=1000)


@job("chat and stream")
def chat():
    message = [ChatMessage(role="user", content="ahoy")]
    assert "ahoy" in llm.chat(message).message.content
    assert "ahoy" in [piece for piece in llm.stream_chat(message)][-1].message.content


@job("agent with a tool over several turns")
async def agent():
    def add(a: int, b: int) -> int:
        """Add numbers."""
        return a + b

    answer = await FunctionAgent(tools=[add], llm=llm).run(block("add", a=40, b=1) + block("add", a=41, b=1))
    assert "42" in str(answer), answer


main()
