"""Clients of Ollama, unchanged and with their defaults, against ``srhpm-plugin serve``: the patched
server and small real models."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import llm
import ollama
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_ollama import ChatOllama, OllamaEmbeddings, OllamaLLM
from pydantic import BaseModel

pytestmark = pytest.mark.server

ASK = "Name a colour."
WEATHER = "What is the weather in London?"
GREEDY = {"temperature": 0, "num_predict": 12}


def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: which one
    """
    return f"windy in {city}"


class Place(BaseModel):
    """What is asked for."""

    city: str


# -- ollama -----------------------------------------------------------------------------------


@pytest.fixture
def client(real_url: str) -> ollama.Client:
    return ollama.Client(real_url)


def test_ollama_lists_and_shows(client: ollama.Client) -> None:
    names = {m.model for m in client.list().models}
    assert names == {"smol:latest", "able:latest", "thinker:latest", "embed:latest"}
    shown = client.show("able")
    assert shown.capabilities == ["completion", "tools"]
    assert shown.modelinfo is not None
    assert shown.modelinfo["general.parameter_count"] == 134515008
    assert shown.details is not None and shown.details.quantization_level == "Q4_1"


def test_ollama_chats(client: ollama.Client) -> None:
    asked: dict[str, Any] = {
        "model": "smol",
        "messages": [{"role": "user", "content": ASK}],
        "options": GREEDY,
    }
    whole = client.chat(**asked)
    chunks = list(client.chat(**asked, stream=True))
    assert len(chunks) > 3
    assert "".join(c.message.content or "" for c in chunks) == whole.message.content
    assert chunks[-1].done and chunks[-1].done_reason == whole.done_reason
    assert whole.eval_count is not None and 0 < whole.eval_count <= 12
    [running] = [m for m in client.ps().models if m.model == "smol:latest"]
    assert running.context_length == 2048 and running.expires_at is not None


def test_ollama_generates_and_goes_on(client: ollama.Client) -> None:
    first = client.generate("smol", ASK, options=GREEDY)
    assert first.response and first.context
    again = client.generate("smol", "And another?", context=first.context, options=GREEDY)
    assert again.context is not None and len(again.context) > len(first.context)
    assert list(again.context[: len(first.context)]) == list(first.context)
    raw = client.generate("smol", "Red, green,", raw=True, options=GREEDY, logprobs=True)
    assert raw.context is None and raw.logprobs is not None
    assert len(raw.logprobs) == raw.eval_count


def test_ollama_formats(client: ollama.Client) -> None:
    answer = client.chat(
        "smol",
        [{"role": "user", "content": "Where is the Louvre?"}],
        format=Place.model_json_schema(),
        options={"temperature": 0, "num_predict": 40},
    )
    assert Place.model_validate_json(answer.message.content or "").city
    answer = client.chat(
        "smol",
        [{"role": "user", "content": "Write JSON with the key a."}],
        format="json",
        options={"temperature": 0, "num_predict": 100},
    )
    assert (answer.message.content or "").lstrip().startswith("{")


def test_ollama_calls_tools(client: ollama.Client) -> None:
    talk: list[Any] = [{"role": "user", "content": WEATHER}]
    options = {"temperature": 0, "num_predict": 60}
    answer = client.chat("able", talk, tools=[get_weather], options=options)
    assert answer.message.tool_calls is not None
    [call] = answer.message.tool_calls
    assert (call.function.name, dict(call.function.arguments)) == (
        "get_weather",
        {"city": "London"},
    )
    result = {"role": "tool", "tool_name": "get_weather", "content": "windy"}
    talk += [answer.message, result]
    last = client.chat("able", talk, tools=[get_weather], options=options)
    assert "windy" in (last.message.content or "")
    streamed = list(
        client.chat("able", talk[:1], tools=[get_weather], options=options, stream=True)
    )
    assert [c.message.tool_calls for c in streamed if c.message.tool_calls]


def test_ollama_thinks(client: ollama.Client) -> None:
    talk = [{"role": "user", "content": ASK}]
    assert client.chat("thinker", talk, think=True, options=GREEDY).message.thinking
    answer = client.chat("thinker", talk, think=False, options=GREEDY).message
    assert answer.content and not answer.thinking
    with pytest.raises(ollama.ResponseError, match="does not support thinking"):
        client.chat("smol", talk, think=True)


def test_ollama_embeds(client: ollama.Client) -> None:
    for model in ("embed", "smol"):
        one = client.embed(model, "hello").embeddings
        two = client.embed(model, ["hello", "something else"], dimensions=8).embeddings
        assert len(one[0]) == 576 and [len(v) for v in two] == [8, 8]
        assert sum(x * x for x in one[0]) == pytest.approx(1, abs=1e-5)
        assert list(two[0]) != list(two[1])
        assert client.embeddings(model, "hello").embedding == pytest.approx(one[0], abs=1e-3)


def test_ollama_creates_copies_and_deletes(client: ollama.Client) -> None:
    client.create("made", from_="smol", system="You are a pirate.", parameters={"num_predict": 3})
    assert client.show("made").modelfile
    answer = client.chat("made", [{"role": "user", "content": "hi"}])
    assert answer.eval_count == 3 and answer.done_reason == "length"
    client.copy("made", "me/twin:v2")
    assert "me/twin:v2" in {m.model for m in client.list().models}
    for name in ("made", "me/twin:v2"):
        assert client.delete(name).status == "success"
    assert not {"made:latest", "me/twin:v2"} & {m.model for m in client.list().models}


def test_ollama_errors(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="model 'nobody' not found") as caught:
        client.generate("nobody", ASK)
    assert caught.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="does not download models"):
        client.pull("nobody")
    assert client.pull("smol").status == "success"


def test_hanging_up_frees_the_slot(client: ollama.Client, real_url: str) -> None:
    options = {"num_predict": 2000, "temperature": 1}
    for piece in client.generate("smol", "Tell a long story.", stream=True, options=options):
        assert not piece.done
        break

    def active() -> int:
        loaded = httpx.get(f"{real_url}/srhpm.json", trust_env=False).json()["loaded"]
        return sum(one["active"] for one in loaded)

    end = time.monotonic() + 5
    while active() and time.monotonic() < end:
        time.sleep(0.02)
    assert active() == 0
    assert client.generate("smol", ASK, options=GREEDY).response


# -- llm with llm-ollama ----------------------------------------------------------------------


@pytest.fixture
def llms(real_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OLLAMA_HOST", real_url)
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))


@pytest.mark.usefixtures("llms")
def test_llm() -> None:
    model = llm.get_model("ollama/smol:latest")
    response = model.prompt(ASK, temperature=0, num_predict=12)
    pieces = list(response)
    assert len(pieces) > 3 and "".join(pieces) == response.text()
    usage = response.usage()
    assert usage.output is not None and 0 < usage.output <= 12
    place = model.prompt("Where is the Louvre?", schema=Place, temperature=0, num_predict=40)
    assert Place.model_validate_json(place.text()).city
    able = llm.get_model("ollama/able:latest")
    chain = able.chain(WEATHER, tools=[get_weather], options={"temperature": 0, "num_predict": 60})
    assert "windy" in chain.text()
    vector = llm.get_embedding_model("ollama/embed:latest").embed("hello")
    assert len(vector) == 576


# -- langchain-ollama -------------------------------------------------------------------------


def test_langchain(real_url: str) -> None:
    chat = ChatOllama(model="smol", base_url=real_url, temperature=0, num_predict=12)
    whole = chat.invoke(ASK)
    chunks = list(chat.stream(ASK))
    assert len(chunks) > 3 and "".join(str(c.content) for c in chunks) == whole.content
    assert whole.usage_metadata is not None and whole.usage_metadata["output_tokens"] <= 12
    assert whole.response_metadata["done_reason"] in ("stop", "length")
    place = ChatOllama(model="smol", base_url=real_url, temperature=0).with_structured_output(Place)
    assert isinstance(place.invoke("Where is the Louvre?"), Place)
    text = OllamaLLM(model="smol", base_url=real_url, temperature=0, num_predict=8)
    assert "".join(text.stream(ASK)) == text.invoke(ASK)


def test_langchain_tools_and_embeddings(real_url: str) -> None:
    able = ChatOllama(model="able", base_url=real_url, temperature=0, num_predict=60)
    able_with_tools = able.bind_tools([get_weather])
    answer = able_with_tools.invoke(WEATHER)
    assert isinstance(answer, AIMessage)
    [call] = answer.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "London"})
    result = ToolMessage("windy", tool_call_id=str(call["id"]))
    last = able_with_tools.invoke([HumanMessage(WEATHER), answer, result])
    assert "windy" in str(last.content)
    thinker = ChatOllama(model="thinker", base_url=real_url, reasoning=True, num_predict=8)
    assert thinker.invoke(ASK).additional_kwargs["reasoning_content"]
    embedder = OllamaEmbeddings(model="embed", base_url=real_url)
    vectors = embedder.embed_documents(["hello", "something else"])
    assert [len(v) for v in vectors] == [576, 576]
    assert embedder.embed_query("hello") == pytest.approx(vectors[0], abs=1e-3)


# -- ollama for Node.js -----------------------------------------------------------------------

_NODE = """
import { Ollama } from 'ollama'
const ollama = new Ollama({ host: process.argv[2] })
const options = { temperature: 0, num_predict: 12 }
const messages = [{ role: 'user', content: 'Name a colour.' }]
const whole = await ollama.chat({ model: 'smol', messages, options })
let streamed = '', pieces = 0
for await (const part of await ollama.chat({ model: 'smol', messages, options, stream: true })) {
  streamed += part.message.content
  pieces += 1
}
const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }
const called = await ollama.chat({
  model: 'able',
  messages: [{ role: 'user', content: 'What is the weather in London?' }],
  tools: [{ type: 'function', function: { name: 'get_weather', parameters } }],
  options: { temperature: 0, num_predict: 60 },
})
const place = await ollama.generate({
  model: 'smol', prompt: 'Where is the Louvre?', format: parameters,
  options: { temperature: 0, num_predict: 40 },
})
const embedded = await ollama.embed({ model: 'embed', input: ['a', 'b'] })
const nobody = await ollama.generate({ model: 'nobody', prompt: 'hi' }).catch((e) => e.message)
console.log(JSON.stringify({
  whole: whole.message.content, streamed, pieces, nobody,
  calls: called.message.tool_calls, place: JSON.parse(place.response),
  dimensions: embedded.embeddings.map((v) => v.length),
  models: (await ollama.list()).models.map((m) => m.name).sort(),
}))
"""


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node.js on this machine")
def test_ollama_for_node(real_url: str, tmp_path: Path) -> None:
    npm = shutil.which("npm")
    assert npm is not None
    install = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(tmp_path), "ollama@0.6.4"]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    script = tmp_path / "client.mjs"
    script.write_text(_NODE)
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    ran = subprocess.run(
        [shutil.which("node") or "node", str(script), real_url],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["streamed"] == said["whole"] and said["pieces"] > 3
    assert said["calls"][0]["function"]["arguments"] == {"city": "London"}
    assert said["place"]["city"]
    assert said["dimensions"] == [576, 576]
    assert said["nobody"] == "model 'nobody' not found"
    assert said["models"] == ["able:latest", "embed:latest", "smol:latest", "thinker:latest"]
