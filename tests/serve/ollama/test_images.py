"""Pictures to a real model by both APIs. Its encoder is of random numbers: what counts is that the
model is told of them, and of each picture something else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import ollama
import ollama_compare
import pytest
from openai import BadRequestError, OpenAI
from pictures import IMAGE_TOKENS, png, write_projector

pytestmark = pytest.mark.server

WHITE = png(lambda x, y: 255)
BOARD = png(lambda x, y: 255 * ((x // 4 + y // 4) % 2))
ASK = "What does it show?"


@pytest.fixture(scope="module")
def sees(real_url: str, smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a model that was created with a projector."""
    path = write_projector(tmp_path_factory.mktemp("projector") / "projector.gguf")
    with ollama_compare.connect(real_url) as client:
        files = {}
        for file in (smollm2, path):
            digest = ollama_compare.upload(client, file)
            files[file.name] = digest
        body = {"model": "sees", "files": files, "stream": False}
        client.post("/api/create", json=body).raise_for_status()
        yield "sees"
        client.request("DELETE", "/api/delete", json={"model": "sees"}).raise_for_status()


def test_ollama(real_url: str, sees: str) -> None:
    client = ollama.Client(real_url)
    assert "vision" in (client.show(sees).capabilities or ())
    texts, tokens = [], []
    for images in ([], [WHITE], [BOARD], [WHITE, BOARD]):
        message = {"role": "user", "content": ASK, "images": images}
        options = {"temperature": 0, "num_predict": 12}
        answer = client.chat(sees, [message], options=options)
        streamed = client.chat(sees, [message], options=options, stream=True)
        assert "".join(part.message.content or "" for part in streamed) == answer.message.content
        texts.append(answer.message.content)
        tokens.append(answer.prompt_eval_count or 0)
    assert len(set(texts)) == 4, texts
    assert tokens[1] == tokens[2] >= tokens[0] + IMAGE_TOKENS
    assert tokens[3] >= tokens[0] + 2 * IMAGE_TOKENS
    told = client.generate(sees, ASK, images=[BOARD], options={"temperature": 0, "num_predict": 12})
    assert (told.prompt_eval_count or 0) > IMAGE_TOKENS and told.response


def test_openai(real_url: str, sees: str) -> None:
    texts = []
    with OpenAI(base_url=f"{real_url}/v1", api_key="any", timeout=300) as client:

        def ask(url: str) -> Any:
            content = [
                {"type": "text", "text": ASK},
                {"type": "image_url", "image_url": {"url": url}},
            ]
            talk: Any = [{"role": "user", "content": content}]
            return client.chat.completions.create(
                model=sees, messages=talk, max_tokens=12, temperature=0
            )

        for picture in (WHITE, BOARD):
            answer = ask(f"data:image/png;base64,{picture}")
            assert answer.usage.prompt_tokens > IMAGE_TOKENS
            texts.append(answer.choices[0].message.content)
        for elsewhere in ("http://127.0.0.1:1/a.png", "file:///etc/hosts"):
            with pytest.raises(BadRequestError, match="not fetched"):
                ask(elsewhere)
    assert texts[0] != texts[1], "it does not look"


def test_anthropic(real_url: str, sees: str) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": BOARD}
    content = [{"type": "image", "source": source}, {"type": "text", "text": ASK}]
    body = {
        "model": sees,
        "max_tokens": 12,
        "messages": [{"role": "user", "content": content}],
    }
    answer = httpx.post(f"{real_url}/v1/messages", json=body, timeout=300, trust_env=False).json()
    usage = answer["usage"]
    assert usage["input_tokens"] + usage.get("cache_read_input_tokens", 0) > IMAGE_TOKENS
    assert answer["content"][0]["text"]


def test_a_model_without_a_projector_says_so(real_url: str) -> None:
    with pytest.raises(ollama.ResponseError, match="does not support images"):
        ollama.Client(real_url).chat("smol", [{"role": "user", "content": ASK, "images": [WHITE]}])
