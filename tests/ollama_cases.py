"""The requests with which ``ollama_compare.py`` compares, and what differs on purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SYSTEM = {"role": "system", "content": "You answer briefly."}
HI = [SYSTEM, {"role": "user", "content": "Say hello."}]
FEW = {"temperature": 0, "num_predict": 2}
"""So few tokens that no answer ends before, whatever the machine's arithmetic."""
LETTERS = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}},
    "required": ["city"],
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


WEATHER = [{"role": "user", "content": "What is the weather in London?"}]
CALL = {
    "id": "c1",
    "function": {"index": 0, "name": "get_weather", "arguments": {"city": "London"}},
}
ANSWERED = [
    *WEATHER,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "windy", "tool_name": "get_weather", "tool_call_id": "c1"},
]


@dataclass(frozen=True)
class Case:
    """A request. ``body`` of bytes is sent as it is."""

    name: str
    method: str
    path: str
    body: Any = None


def _post(name: str, path: str, /, **body: Any) -> Case:
    return Case(name, "POST", f"/api/{path}", body)


def _chat(name: str, **body: Any) -> Case:
    return _post(name, "chat", **{"model": "smol", "messages": HI, "options": FEW, **body})


def _generate(name: str, **body: Any) -> Case:
    asked = {"model": "smol", "prompt": "Say hello.", "system": "You answer briefly."}
    return _post(name, "generate", **{**asked, "options": FEW, **body})


ZERO = "sha256:" + "0" * 64

CASES: Sequence[Case] = (
    Case("root", "GET", "/"),
    Case("root, head", "HEAD", "/"),
    Case("version", "GET", "/api/version"),
    Case("version, head", "HEAD", "/api/version"),
    Case("status", "GET", "/api/status"),
    Case("no such route", "GET", "/api/nothing"),
    Case("wrong method", "GET", "/api/generate"),
    Case("tags", "GET", "/api/tags"),
    Case("tags, head", "HEAD", "/api/tags"),
    _post("show", "show", model="smol"),
    _post("show by its old name", "show", name="smol"),
    _post("show, system", "show", model="smol", system="x"),
    _post("show, tools", "show", model="able"),
    _post("show, thinking", "show", model="thinker"),
    _post("show, embedding", "show", model="embed"),
    _post("show nobody", "show", model="nobody"),
    _post("show nothing", "show"),
    # -- generate
    _generate("generate"),
    Case("ps", "GET", "/api/ps"),
    _generate("generate, whole", stream=False),
    _generate("generate, raw", stream=False, raw=True, system=""),
    _generate("generate, raw and system", raw=True),
    _generate("generate, json", stream=False, format="json"),
    _generate("generate, schema", stream=False, format=SCHEMA),
    _generate("generate, format unknown", stream=False, format="xml"),
    _generate("generate, logprobs", stream=False, logprobs=True),
    _generate("generate, top_logprobs", stream=False, logprobs=True, top_logprobs=2),
    _generate("generate, top_logprobs too many", top_logprobs=21),
    _generate("generate, context", stream=False, context=[1, 4093, 198, 26843, 2, 198]),
    _generate("generate, stop", stream=False, options={**FEW, "num_predict": 20, "stop": LETTERS}),
    _generate("generate, suffix", suffix="x"),
    _generate("generate, think", think=True),
    _generate("generate, think in no form", think="much"),
    _generate("generate, thinker", model="thinker", stream=False),
    _generate("generate, thinker told not to", model="thinker", think=False, stream=False),
    _generate("generate, debug", _debug_render_only=True),
    _generate("generate, load", prompt=""),
    _generate("generate, unload", prompt="", keep_alive=0),
    _generate("generate, keep_alive wrong", keep_alive="soon"),
    _generate("generate, option of the wrong type", options={"top_k": "a"}),
    _generate("generate, options unknown", stream=False, options={**FEW, "magic": 1}),
    _generate("generate, images but none can be seen", images=["aaaa"], stream=False),
    _generate("generate nobody", model="nobody"),
    _generate("generate with no model", model=""),
    _generate("generate, a name that is none", model="a b"),
    _generate("generate, model of the wrong type", model=5),
    _generate("generate with a model for embeddings", model="embed"),
    Case("generate without a body", "POST", "/api/generate", b""),
    Case("generate, no JSON", "POST", "/api/generate", b"{"),
    # -- chat
    _chat("chat"),
    _chat("chat, whole", stream=False),
    _chat("chat, json", stream=False, format="json"),
    _chat("chat, schema", stream=False, format=SCHEMA),
    _chat("chat, logprobs", logprobs=True, top_logprobs=1),
    _chat("chat, answer begun", messages=[*HI, {"role": "assistant", "content": "Hel"}]),
    _chat(
        "chat, answer begun, template of the file",
        model="able",
        messages=[*HI, {"role": "assistant", "content": "Hel"}],
        stream=False,
    ),
    _chat("chat, thinker", model="thinker"),
    _chat("chat, thinker, whole", model="thinker", stream=False),
    _chat("chat, thinker told not to", model="thinker", think=False, stream=False),
    _chat("chat, thinker, level", model="thinker", think="low", stream=False),
    _chat(
        "chat, tools",
        model="able",
        messages=WEATHER,
        tools=[TOOL],
        options={"temperature": 0, "num_predict": 60},
    ),
    _chat(
        "chat, tools, whole",
        model="able",
        messages=WEATHER,
        tools=[TOOL],
        stream=False,
        options={"temperature": 0, "num_predict": 60},
    ),
    _chat(
        "chat, tools, answered",
        model="able",
        messages=ANSWERED,
        tools=[TOOL],
        stream=False,
        options={"temperature": 0, "num_predict": 20},
    ),
    _chat("chat, tools that the template lacks", tools=[TOOL]),
    _chat("chat, think", think=True),
    _chat("chat, debug", _debug_render_only=True),
    _chat("chat, load", messages=[]),
    _chat("chat, unload", messages=[], keep_alive=0),
    _chat("chat nobody", model="nobody"),
    _chat("chat with a model for embeddings", model="embed"),
    Case("chat with nothing", "POST", "/api/chat", {}),
    # -- embeddings
    _post("embed", "embed", model="embed", input="hello"),
    _post("embed several, cut", "embed", model="embed", input=["hello", "you"], dimensions=4),
    _post("embed too much", "embed", model="embed", input="hello " * 5000, truncate=False),
    _post("embed nothing", "embed", model="embed"),
    _post("embed something else", "embed", model="embed", input=5),
    _post("embed with a model for text", "embed", model="smol", input="hello"),
    _post("embed nobody", "embed", model="nobody", input="hello"),
    _post("embeddings", "embeddings", model="embed", prompt="hello"),
    _post("embeddings of nothing", "embeddings", model="embed"),
    # -- models
    _post("copy", "copy", source="smol", destination="twin"),
    _post("copy nobody", "copy", source="nobody", destination="other"),
    _post("copy to no name", "copy", source="smol", destination="a b"),
    _post(
        "create from a model", "create", **{"model": "made", "from": "smol", "system": "Be brief."}
    ),
    _post(
        "create, whole",
        "create",
        **{"model": "made", "from": "smol", "stream": False},
        parameters={"temperature": 0.5, "stop": ["x"], "num_ctx": 1000},
        license="free",
        messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}],
    ),
    _post("show what was created", "show", model="made"),
    _chat("chat with what was created", model="made", stream=False),
    _post("create from nothing", "create", model="made2"),
    _post("create with a bad name", "create", **{"model": "a b", "from": "smol"}),
    _post(
        "create with an unknown parameter",
        "create",
        **{"model": "made3", "from": "smol"},
        parameters={"magic": 1},
    ),
    _post("create with a bad digest", "create", model="made4", files={"a.gguf": "sha256:00"}),
    Case("a blob that is not here", "HEAD", f"/api/blobs/{ZERO}"),
    Case("a blob with no digest", "HEAD", "/api/blobs/sha256:00"),
    Case("a blob that is another", "POST", f"/api/blobs/{ZERO}", b"abc"),
    Case("delete", "DELETE", "/api/delete", {"model": "twin"}),
    Case("delete what was created", "DELETE", "/api/delete", {"model": "made"}),
    Case("delete nobody", "DELETE", "/api/delete", {"model": "nobody"}),
    _post("push nobody", "push", model="nobody", stream=False),
)


_TEMPLATE = "the GGUF's own template is used; Ollama puts one of its own, with stops, in its place"
_WORDS = "other words"
_EARLIER = "wrong requests are refused before a model is loaded, with 400"
_PLAIN = (("values: error", _WORDS),)
_REFUSED = (("status", _EARLIER), ("values: error", _WORDS))
_SHOWN = (("fields: parameters", _TEMPLATE), ("values: parameters", _TEMPLATE))

DIFFERENCES: Mapping[str, Sequence[tuple[str, str]]] = {
    "version": (("fields: srhpm", "our version too"), ("values: srhpm", "our version too")),
    "status": (("values: cloud.source", "it cannot be switched on"),),
    "no such route": (("kind", "an error is always JSON"), ("values", _WORDS)),
    "wrong method": (("kind", "an error is always JSON"), ("values", _WORDS)),
    "show": _SHOWN,
    "show by its old name": _SHOWN,
    "show, system": _SHOWN,
    "show, embedding": _SHOWN,
    "show nobody": (("values: error", "the name as it was asked for"),),
    "generate, format unknown": _REFUSED,
    "generate, suffix": _PLAIN,
    "generate, thinker": (("fields: thinking", "thoughts are told apart here too"),),
    "generate, keep_alive wrong": _PLAIN,
    "generate, option of the wrong type": (("status", _EARLIER),),
    "generate, images but none can be seen": _PLAIN,
    "generate with no model": _REFUSED,
    "generate, a name that is none": (
        ("status", "names of other hosts' models may have any form"),
        ("values: error", _WORDS),
    ),
    "generate, model of the wrong type": _PLAIN,
    "generate, no JSON": _PLAIN,
    "chat, answer begun": (("values: prompt_eval_count", _TEMPLATE),),
    "chat, tools that the template lacks": _PLAIN,
    "embed with a model for text": (
        ("status", "text models embed too, by their last token"),
        ("values", "text models embed too, by their last token"),
    ),
    "chat with what was created": (("values: prompt_eval_count", _TEMPLATE),),
    "create with an unknown parameter": (
        ("status", "Ollama stores it"),
        ("kind", "Ollama stores it"),
        ("values", "Ollama stores it"),
    ),
    "create with a bad digest": (("status", _EARLIER), ("kind", _EARLIER)),
    "push nobody": (("status", "nothing is uploaded"), ("values: error", _WORDS)),
}
"""What differs on purpose: the beginning of the line that :func:`differences` gives, and why."""
