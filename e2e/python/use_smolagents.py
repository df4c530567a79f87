"""smolagents: an agent that writes code, which runs in a sandbox of Berth by E2BExecutor."""

import os

os.environ.setdefault("E2B_API_KEY", "e2b_" + "0" * 40)

from e2b_code_interpreter import Sandbox  # noqa: E402
from smolagents import CodeAgent, Model, tool  # noqa: E402
from smolagents.models import ChatMessage, MessageRole  # noqa: E402

from berth import job, main  # noqa: E402


class Steps(Model):
    """A model that says the next text each time."""

    def __init__(self, *texts):
        super().__init__(model_id="steps")
        self.texts = list(texts)

    def generate(self, messages, **_):
        return ChatMessage(role=MessageRole.ASSISTANT, content=self.texts.pop(0))


def step(code):
    return f"Thought: the next step.\n<code>\n{code}\n</code>"


@tool
def tide(port: str) -> int:
    """Say at which hour the tide is high.

    Args:
        port: the name of a port
    """
    return {"Brest": 4, "Kiel": 11}[port]


@job("CodeAgent with E2BExecutor: several steps with state, a tool, an error and an answer")
def agent():
    model = Steps(
        step("import os\nopen('hours.txt', 'w').write(str(tide(port='Brest')))\nhours = [tide(port='Kiel')]\nprint(os.getcwd())"),
        step("raise ValueError('the tide is out')"),
        step("hours.append(int(open('hours.txt').read()))\nfinal_answer(sorted(hours))"),
    )
    with CodeAgent(tools=[tide], model=model, executor_type="e2b", verbosity_level=0) as agent:
        answer = agent.run("When is the tide high?")
        seen = [str(s.observations) for s in agent.memory.steps if hasattr(s, "observations")]
        errors = [str(s.error) for s in agent.memory.steps if getattr(s, "error", None)]
    assert answer == [4, 11], answer
    assert "/home/user" in seen[0], seen
    assert len(errors) == 1 and "the tide is out" in errors[0], errors
    assert not Sandbox.list().next_items(), "a sandbox is left"


if __name__ == "__main__":
    main()
