"""Programs with many dependencies of their own, unchanged, against ``srhpm-plugin serve``: LiteLLM
as a proxy in front of it, ``llama-index-llms-ollama``.

They are installed into an environment of their own, which is kept: some minutes the first time. In
ours they would decide on the versions of half of what we need.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from filelock import FileLock
from openai import BadRequestError, OpenAI
from pydantic import BaseModel

from srhpm_plugin import home
from srhpm_plugin.launch.ports import free_port

pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]

PACKAGES = ("litellm[proxy]==1.108.7", "llama-index-llms-ollama==0.11.0")


@pytest.fixture(scope="session")
def foreign() -> Path:
    """The folder of their programs."""
    said = "\n".join((*PACKAGES, sys.version))
    parent = Path(os.environ.get("SRHPM_TEST_CLIENTS") or home.cache_dir() / "test-clients")
    parent.mkdir(parents=True, exist_ok=True)
    folder = parent / hashlib.sha256(said.encode()).hexdigest()[:12]
    programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
    with FileLock(parent / "lock"):
        if not (folder / "complete").exists():
            venv.create(folder, clear=True, with_pip=True)
            pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", *PACKAGES]
            subprocess.run(pip, check=True, timeout=1500)
            (folder / "complete").touch()
    return programs


def clean() -> dict[str, str]:
    """The environment, without settings of the clients and without proxies."""
    left_out = ("OPENAI_", "OLLAMA_", "LITELLM_")
    return {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(left_out) and not k.lower().endswith("_proxy")
    }


# -- llama-index ------------------------------------------------------------------------------


def test_llama_index(foreign: Path, real_url: str, tmp_path: Path) -> None:
    script = Path(__file__).with_name("llama_index_client.py")
    argv = [str(foreign / "python"), str(script), real_url]
    env = {**clean(), "NLTK_DATA": str(tmp_path)}
    ran = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=600, env=env)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("llama-index-llms-ollama 0.11.0: fine")


# -- LiteLLM ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def proxy(
    foreign: Path, real_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OpenAI]:
    """OpenAI's client, of a LiteLLM that has our models by both of our APIs, its defaults else."""
    ours = {"api_base": f"{real_url}/v1", "api_key": "any"}
    ollama = {"api_base": real_url}
    models: dict[str, dict[str, str]] = {}
    for name in ("smol", "able", "embed"):
        models[f"openai-{name}"] = {"model": f"openai/{name}", **ours}
        models[f"ollama-{name}"] = {"model": f"ollama_chat/{name}", **ollama}
    models["ollama-embed"] = {"model": "ollama/embed", **ollama}
    config = {"model_list": [{"model_name": n, "litellm_params": p} for n, p in models.items()]}
    folder = tmp_path_factory.mktemp("litellm")
    (folder / "config.yaml").write_text(json.dumps(config))  # which is YAML, too
    port = free_port()
    argv = [str(foreign / "litellm"), "--config", "config.yaml", "--port", str(port)]
    key = f"sk-{secrets.token_hex(24)}"  # it does not start without one
    env = {**clean(), "LITELLM_MASTER_KEY": key, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*argv, "--host", "127.0.0.1"], env=env, cwd=folder, stdout=log, stderr=log
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _until_it_answers(f"{url}/health/liveliness", process, folder / "log")
        with OpenAI(base_url=f"{url}/v1", api_key=key, timeout=300) as client:
            yield client
    finally:
        process.terminate()
        process.wait(30)


def _until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 240
    while True:
        try:
            if httpx.get(url, trust_env=False, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None and time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.3)


WAYS = pytest.mark.parametrize("way", ["openai", "ollama"])
ASK: Any = [{"role": "user", "content": "Name a colour."}]


@WAYS
def test_litellm_answers_and_streams(proxy: OpenAI, way: str) -> None:
    asked: dict[str, Any] = {"model": f"{way}-smol", "messages": ASK, "max_tokens": 12}
    whole = proxy.chat.completions.create(**asked, temperature=0)
    chunks = list(proxy.chat.completions.create(**asked, temperature=0, stream=True))
    said = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert "".join(said) == whole.choices[0].message.content != ""
    assert sum(map(bool, said)) > 3
    assert whole.usage is not None and 0 < whole.usage.completion_tokens <= 12


@WAYS
def test_litellm_calls_tools(proxy: OpenAI, way: str) -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    function = {"name": "get_weather", "description": "The weather.", "parameters": parameters}
    answer = proxy.chat.completions.create(
        model=f"{way}-able",
        messages=[{"role": "user", "content": "What is the weather in London?"}],
        tools=[{"type": "function", "function": function}],  # type: ignore[list-item]
        max_tokens=60,
        temperature=0,
    )
    [call] = answer.choices[0].message.tool_calls or ()
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "London"}


class Place(BaseModel):
    """What is asked for."""

    city: str


@WAYS
def test_litellm_keeps_to_a_schema(proxy: OpenAI, way: str) -> None:
    answer = proxy.chat.completions.create(
        model=f"{way}-smol",
        messages=[{"role": "user", "content": "Where is the Louvre?"}],
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "place", "schema": Place.model_json_schema()},
        },
        max_tokens=40,
        temperature=0,
    )
    assert Place.model_validate_json(answer.choices[0].message.content or "").city


@WAYS
def test_litellm_embeds(proxy: OpenAI, way: str) -> None:
    # OpenAI's client asks for base64 by itself, which LiteLLM does not translate for Ollama.
    body = {"model": f"{way}-embed", "input": ["a cat", "tax law"]}
    answer: Any = proxy.post("/embeddings", body=body, cast_to=object)
    first, second = (one["embedding"] for one in answer["data"])
    assert len(first) == len(second) == 576 and first != second


def test_litellm_knows_what_was_wrong(proxy: OpenAI) -> None:
    talk: Any = [{"role": "user", "content": "word " * 9000}]
    with pytest.raises(BadRequestError, match="ContextWindowExceeded"):
        proxy.chat.completions.create(model="openai-smol", messages=talk, max_tokens=4)
