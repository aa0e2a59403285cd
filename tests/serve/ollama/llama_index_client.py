"""llama-index-llms-ollama, unchanged, against ``srhpm-plugin serve``; ``test_foreign.py`` runs it
in an environment of its own. By hand, with the models that ``tests/ollama_compare.py`` makes:

    pip install llama-index-llms-ollama
    python tests/serve/ollama/llama_index_client.py URL
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.ollama import Ollama
from pydantic import BaseModel

ASK = "Name a colour."


class Place(BaseModel):
    """What is asked for."""

    city: str


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"windy in {city}"


def main(url: str) -> None:
    """Asks, and fails where an answer is not as it must be."""

    def llm(model: str, tokens: int, **more: Any) -> Any:
        few = {"num_predict": tokens}
        return Ollama(model=model, base_url=url, temperature=0, additional_kwargs=few, **more)

    smol = llm("smol", 12)
    pieces = [piece.delta or "" for piece in smol.stream_complete(ASK)]
    assert len(pieces) > 3 and "".join(pieces) == smol.complete(ASK).text
    talk = [ChatMessage(role="user", content=ASK)]
    answer = smol.chat(talk)
    assert "".join(p.delta or "" for p in smol.stream_chat(talk)) == answer.message.content
    assert 0 < answer.raw["eval_count"] <= 12
    place = llm("smol", 40).as_structured_llm(Place).complete("Where is the Louvre?")
    assert isinstance(place.raw, Place)
    able = llm("able", 60)
    tools = [FunctionTool.from_defaults(get_weather)]
    called = able.chat_with_tools(tools, user_msg="What is the weather in London?")
    [call] = able.get_tool_calls_from_response(called)
    assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"city": "London"})
    thought = llm("thinker", 12, thinking=True).chat(talk).message
    assert any(block.block_type == "thinking" for block in thought.blocks)
    print(f"llama-index-llms-ollama {version('llama-index-llms-ollama')}: fine")


if __name__ == "__main__":
    main(sys.argv[1])
