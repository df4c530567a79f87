"""LangGraph: agents and graphs whose model is on Berth."""

import operator
from typing import Annotated, TypedDict

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph.types import Command, interrupt

from berth import auto, call, job, main, scripted, sh

responses = ChatOpenAI(model=scripted, use_responses_api=True)
chat = ChatOpenAI(model=scripted, use_responses_api=False)


@tool
def tide(port: str) -> str:
    """Say when the tide is high."""
    return f"high at noon in {port}"


def ask(agent, text, **config):
    return agent.invoke({"messages": [HumanMessage(text)]}, {"configurable": config} if config else None)["messages"][-1].text


@job("ReAct agent over Responses")
def react():
    assert ask(create_react_agent(responses, [tide]), call("tide", port="Brest")) == "1. tide: high at noon in Brest"


@job("ReAct agent over Chat Completions")
def react_chat():
    assert ask(create_react_agent(chat, [tide], name="harbour"), call("tide", port="Brest")) == "1. tide: high at noon in Brest"


@job("memory over several turns")
def memory():
    for llm in (responses, chat):
        agent = create_react_agent(llm, [tide], checkpointer=InMemorySaver())
        ask(agent, call("tide", port="Kiel"), thread_id="1")
        assert ask(agent, "And now?", thread_id="1") == "And now?"
        assert len(agent.get_state({"configurable": {"thread_id": "1"}}).values["messages"]) == 6


@job("stream of messages")
def stream():
    for llm in (responses, chat):
        text = ""
        for chunk, _ in create_react_agent(llm, [tide]).stream({"messages": [HumanMessage(call("tide", port="Oslo"))]}, stream_mode="messages"):
            if chunk.type == "AIMessageChunk":
                text += chunk.text
        assert text == "1. tide: high at noon in Oslo", text


@job("graph with a shell in a container and an approval")
def graph():
    class State(TypedDict):
        messages: Annotated[list[AnyMessage], operator.add]
        approved: bool

    shell = responses.bind(tools=[auto])
    g = StateGraph(State)
    g.add_node("work", lambda s: {"messages": [shell.invoke(s["messages"])]})
    g.add_node("approve", lambda s: {"approved": interrupt("May it go on?")})
    g.add_edge(START, "approve")
    g.add_conditional_edges("approve", lambda s: "work" if s["approved"] else END)
    g.add_edge("work", END)
    app = g.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    waiting = app.invoke({"messages": [HumanMessage(sh("echo 41 > n", "echo $(($(cat n) + 1))"))]}, config)
    assert "__interrupt__" in waiting
    done = app.invoke(Command(resume=True), config)
    assert done["messages"][-1].text == "1. exit 0\n2. exit 0: 42", done


main()
