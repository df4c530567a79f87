"""instructor: objects from a model, by its modes for OpenAI's API."""

from collections.abc import Iterable

import instructor
import openai
from instructor import Mode
from pydantic import BaseModel, field_validator

from berth import block, job, main, reciter


class Port(BaseModel):
    name: str
    berths: int = 0

    @field_validator("berths")
    @classmethod
    def not_negative(cls, n):
        if n < 0:
            raise ValueError("a port has no fewer berths than none")
        return n


def client(mode):
    return instructor.from_openai(openai.OpenAI(), mode=mode)


def ask(mode, text, response_model=Port, **options):
    return client(mode).chat.completions.create(
        model=reciter, messages=[{"role": "user", "content": text}], response_model=response_model, **options)


kiel = {"name": "Kiel", "berths": 3}


@job("an object by a tool, as JSON and by a schema")
def objects():
    for mode in Mode.TOOLS, Mode.TOOLS_STRICT, Mode.RESPONSES_TOOLS:
        assert ask(mode, block("Port", **kiel)).model_dump() == kiel, mode
    for mode in Mode.JSON, Mode.JSON_SCHEMA:
        assert ask(mode, 'Say only this: {"name":"Kiel","berths":3}').model_dump() == kiel, mode


@job("an object that its validator refuses is asked for again")
def again():
    for mode in Mode.TOOLS, Mode.TOOLS_STRICT:
        assert ask(mode, block("Port", name="Kiel", berths=-1) + block("Port", **kiel), max_retries=2).model_dump() == kiel, mode


@job("a partial object, and several objects, streamed")
def streams():
    for mode in Mode.TOOLS, Mode.RESPONSES_TOOLS:
        message = [{"role": "user", "content": block("PartialPort", **kiel)}]
        parts = [p.model_dump() for p in client(mode).chat.completions.create_partial(model=reciter, messages=message, response_model=Port)]
        assert len(parts) > 1 and parts[-1] == kiel, parts
    text = block("IterablePort", tasks=[kiel, {"name": "Oslo", "berths": 1}])
    assert [p.name for p in ask(Mode.TOOLS, text, Iterable[Port], stream=True)] == ["Kiel", "Oslo"]


main()
