"""OpenAI's own client, unchanged and with its defaults, against ``srhpm-plugin serve``: the patched
server and a small real model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from openai import BadRequestError, NotFoundError, OpenAI
from pydantic import BaseModel
from serve_models import CHATML_TOOLS, variant

pytestmark = pytest.mark.server

MODEL = "smol"
WITH_TOOLS = "smol-tools"  # the same with a template that knows tools
ASK = [{"role": "user", "content": "Name three colours."}]


@pytest.fixture(scope="module")
def served_url(
    server_dir: Path, smollm2: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """``srhpm-plugin serve`` over a folder with the one model."""
    folder = tmp_path_factory.mktemp("serve")
    models = folder / "models"
    models.mkdir()
    try:
        os.link(smollm2, models / f"{MODEL}.gguf")
    except OSError:  # another file system
        shutil.copyfile(smollm2, models / f"{MODEL}.gguf")
    variant(smollm2, models / f"{WITH_TOOLS}.gguf", tokenizer__chat_template=CHATML_TOOLS)
    program = server_dir / ("llama-server.exe" if sys.platform == "win32" else "llama-server")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OLLAMA_", "OPENAI_"))}
    env |= {
        "SRHPM_HOME": str(folder / "home"),
        "SRHPM_MODELS": str(models),
        "SRHPM_SERVER": str(program),
        "SRHPM_HOSTED": "off",
        "OLLAMA_HOST": "127.0.0.1:0",
    }
    argv = [sys.executable, "-m", "srhpm_plugin", "serve", "--json", "--ctx", "2048"]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            ready = json.loads(process.stdout.readline())
            assert ready["event"] == "ready"
            yield ready["url"]
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def openai(served_url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{served_url}/v1", api_key="anything") as client:
        yield client


def test_models(openai: OpenAI) -> None:
    assert MODEL in [m.id for m in openai.models.list()]
    assert openai.models.retrieve(MODEL).id == MODEL
    with pytest.raises(NotFoundError, match="nobody"):
        openai.models.retrieve("nobody")


def test_chat(openai: OpenAI) -> None:
    answer = openai.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=24, temperature=0, seed=1
    )
    assert answer.model == MODEL
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert 0 < answer.usage.completion_tokens <= 24


def test_a_stream_says_what_the_whole_answer_says(openai: OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": ASK,
        "max_tokens": 24,
        "temperature": 0,
    }
    whole = openai.chat.completions.create(**asked).choices[0].message.content
    chunks = list(
        openai.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    said = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
    assert len(said) > 3
    assert "".join(said) == whole
    assert {c.model for c in chunks} == {MODEL}
    assert chunks[-1].usage is not None


def test_tools(openai: OpenAI) -> None:
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
        "required": ["city"],
    }
    answer = openai.chat.completions.create(
        model=WITH_TOOLS,
        messages=_shown("Rome", "Paris", "Rome"),
        tools=[
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "description": "The weather in a city.",
                    "parameters": parameters,
                },
            }
        ],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=200,
        temperature=0,
    )
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls", choice
    assert choice.message.tool_calls
    call = choice.message.tool_calls[0]
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")


def _shown(*cities: str) -> Any:
    """A conversation in which the tool was called for all cities but the last: so small a model
    learns it from examples only."""
    messages: list[dict[str, Any]] = []
    for i, city in enumerate(cities):
        messages.append({"role": "user", "content": f"What is the weather in {city}?"})
        if i < len(cities) - 1:
            function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
            call = {"id": f"call{i}", "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"call{i}", "content": "sunny"})
            messages.append({"role": "assistant", "content": "It is sunny."})
    return messages


class Animal(BaseModel):
    """What is asked for."""

    kind: Literal["dog", "cat"]
    legs: int


def test_a_json_schema_holds(openai: OpenAI) -> None:
    answer = openai.chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "Describe a dog."}],
        response_format=Animal,
        max_tokens=100,
        temperature=0,
    )
    assert isinstance(answer.choices[0].message.parsed, Animal)


def test_logprobs(openai: OpenAI) -> None:
    answer = openai.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=4, temperature=0, logprobs=True, top_logprobs=3
    )
    said = answer.choices[0].logprobs
    assert said is not None
    assert said.content is not None
    assert len(said.content) >= 1
    for token in said.content:
        assert len(token.top_logprobs) == 3
        assert token.logprob <= 0


def test_completions(openai: OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": "One, two, three,", "max_tokens": 8}
    whole = openai.completions.create(**asked, temperature=0)
    pieces = openai.completions.create(**asked, temperature=0, stream=True)
    assert whole.choices[0].text
    assert "".join(piece.choices[0].text for piece in pieces if piece.choices) == (
        whole.choices[0].text
    )


def test_responses(openai: OpenAI) -> None:
    answer = openai.responses.create(
        model=MODEL, input="Say hello.", max_output_tokens=16, temperature=0
    )
    assert answer.output_text
    assert answer.model == MODEL
    events = list(
        openai.responses.create(
            model=MODEL, input="Say hello.", max_output_tokens=16, temperature=0, stream=True
        )
    )
    said = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert said == answer.output_text
    assert events[-1].type == "response.completed"


def test_embeddings(openai: OpenAI) -> None:
    texts = ["a cat", "a kitten", "tax law"]
    answer = openai.embeddings.create(model=MODEL, input=texts)
    vectors = [one.embedding for one in answer.data]
    assert [one.index for one in answer.data] == [0, 1, 2]
    assert len({len(v) for v in vectors}) == 1
    assert vectors[0] != vectors[1]
    again = openai.embeddings.create(model=MODEL, input="a cat", encoding_format="float")
    assert again.data[0].embedding == pytest.approx(vectors[0], abs=1e-3)


def test_errors_are_the_clients_own(openai: OpenAI) -> None:
    with pytest.raises(NotFoundError, match="nobody"):
        openai.chat.completions.create(model="nobody", messages=ASK)  # type: ignore[arg-type]
    with pytest.raises(BadRequestError) as caught:
        long = "word " * 5000
        openai.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": long}], max_tokens=4
        )
    assert caught.value.code == "context_length_exceeded"


def test_anthropics_messages(served_url: str) -> None:
    asked = {"model": MODEL, "max_tokens": 8, "messages": ASK, "temperature": 0}
    headers = {"x-api-key": "anything", "anthropic-version": "2023-06-01"}
    post = f"{served_url}/v1/messages"
    answer = httpx.post(post, json=asked, headers=headers, timeout=120).json()
    assert answer["model"] == MODEL
    assert answer["content"][0]["text"]
    counted = httpx.post(f"{post}/count_tokens", json=asked, headers=headers, timeout=120).json()
    assert counted["input_tokens"] > 5


def test_the_page_and_metrics_tell_of_it(served_url: str) -> None:
    now = httpx.get(f"{served_url}/srhpm.json").json()
    assert MODEL in now["requests"]
    assert now["requests"][MODEL]["tokens"] > 20
    loaded = [one for one in now["loaded"] if one["model"] == MODEL and not one["embedding"]]
    assert loaded[0]["plan"]["kind"] in ("srhpm", "all-gpu", "stock")
    assert "srhpm_tokens_total{" in httpx.get(f"{served_url}/metrics").text
    assert "text/html" in httpx.get(f"{served_url}/srhpm").headers["content-type"]


# -- openai for Node.js -----------------------------------------------------------------------

_NODE = """
import OpenAI from 'openai'
const openai = new OpenAI({ baseURL: process.argv[2], apiKey: 'anything' })
const messages = [{ role: 'user', content: 'Name three colours.' }]
const asked = { model: 'smol', messages, temperature: 0, max_tokens: 12 }
const whole = await openai.chat.completions.create(asked)
let streamed = '', pieces = 0
for await (const part of await openai.chat.completions.create({ ...asked, stream: true })) {
  streamed += part.choices[0]?.delta?.content ?? ''
  pieces += 1
}
const parameters = { type: 'object', properties: { city: { enum: ['Rome'] } }, required: ['city'] }
const called = await openai.chat.completions.create({
  ...asked, model: 'smol-tools', max_tokens: 200, tool_choice: 'required',
  messages: JSON.parse(process.argv[3]),
  tools: [{ type: 'function', function: { name: 'get_weather', parameters } }],
})
const place = await openai.chat.completions.create({
  ...asked, max_tokens: 60,
  response_format: { type: 'json_schema', json_schema: { name: 'place', schema: parameters } },
})
const response = await openai.responses.create({ model: 'smol', input: 'Hi', max_output_tokens: 6 })
const embedded = await openai.embeddings.create({ model: 'smol', input: ['a', 'b'] })
const nobody = await openai.chat.completions.create({ ...asked, model: 'nobody' }).catch((e) => e)
console.log(JSON.stringify({
  whole: whole.choices[0].message.content, streamed, pieces,
  call: called.choices[0].message.tool_calls[0].function,
  place: JSON.parse(place.choices[0].message.content),
  response: response.output_text,
  dimensions: embedded.data.map((d) => d.embedding.length),
  nobody: [nobody.constructor.name, nobody.status, nobody.code],
  models: (await openai.models.list()).data.map((m) => m.id).sort(),
}))
"""


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node.js on this machine")
def test_openai_for_node(served_url: str, tmp_path: Path) -> None:
    npm = shutil.which("npm")
    assert npm is not None
    package = "openai@6.49.0"
    install = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(tmp_path), package]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    script = tmp_path / "client.mjs"
    script.write_text(_NODE)
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    shown = json.dumps(_shown("Rome", "Rome", "Rome"))
    argv = [shutil.which("node") or "node", str(script), f"{served_url}/v1", shown]
    ran = subprocess.run(
        argv, check=False, capture_output=True, text=True, timeout=300, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["streamed"] == said["whole"] and said["pieces"] > 3
    assert said["call"]["name"] == "get_weather"
    assert json.loads(said["call"]["arguments"]) == {"city": "Rome"}
    assert said["place"] == {"city": "Rome"}
    assert said["response"]
    assert said["dimensions"] == [576, 576]
    assert said["nobody"] == ["NotFoundError", 404, "model_not_found"]
    assert said["models"] == ["smol", "smol-tools"]
