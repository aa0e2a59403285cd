"""Models of Ollama's store that are more than one file: adapters, projectors, prediction heads.

The files are tiny and of random numbers: they show that what Ollama passes reaches our server and
counts, not what such models can do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from adapters import write_adapter
from ollama_copy import Copy, blob, records, runs_ours, words
from pictures import IMAGE_TOKENS, png, write_projector

from srhpm_plugin.integrations.ollama import Ollama as Host

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(sys.platform != "linux", reason="the stand-in for its server is a script"),
]
HOST = Host()


@pytest.fixture(scope="session")
def adapter(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(tmp_path_factory.mktemp("adapter") / "adapter.gguf", smollm2)


@pytest.fixture(scope="session")
def projector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image encoder for the small model."""
    return write_projector(tmp_path_factory.mktemp("projector") / "projector.gguf")


def test_an_adapter(
    ollama: Copy, smollm2: Path, adapter: Path, server_dir: Path, register: Callable[..., Any]
) -> None:
    """``ADAPTER``: the model answers otherwise than its base, drafted or not alike."""
    ollama.shelf.add("tuned:latest", smollm2, adapter=adapter)
    lora = ollama.shelf.path(ollama.shelf.blob(adapter))
    model = blob(ollama, "smol:135m", smollm2)
    register(HOST, ollama.root, "all")
    texts = {}
    for name, more, env in (
        ("base", {}, ""),
        ("tuned", {"adapters": [lora]}, ""),
        ("undrafted", {"adapters": [lora]}, "none"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            if env:
                patch.setenv("SRHPM_DRAFT", env)
            runner = ollama.ollama.start(model, num_gpu=0, **more)
        runner.wait_until_running()
        assert runs_ours(runner, server_dir)
        texts[name], _ = words(runner, n=48)
        assert runner.log.errors == []
        runner.kill()
    assert texts["tuned"] != texts["base"]
    assert texts["undrafted"] == texts["tuned"]
    # a name for each: what was started is told by the adapter
    assert [r["model"] for r in records()] == ["smol:135m", "tuned:latest", "tuned:latest"]


@pytest.mark.parametrize("in_ram", [False, True])
def test_a_projector(
    in_ram: bool,
    ollama: Copy,
    smollm2: Path,
    projector: Path,
    server_dir: Path,
    register: Callable[..., Any],
) -> None:
    """A projector in a file of its own: pictures come to the model by Ollama's own mark."""
    ollama.shelf.add("sees:latest", smollm2, projector=projector)
    mmproj = ollama.shelf.path(ollama.shelf.blob(projector))
    model = ollama.shelf.path(ollama.shelf.blob(smollm2))
    register(HOST, ollama.root, "all")
    options = {"projector": mmproj, "projector_in_ram": in_ram}
    runner = ollama.ollama.start(model, num_gpu=0, **options)
    runner.wait_until_running()
    assert runs_ours(runner, server_dir)
    texts = []
    for shade in (lambda x, y: 255, lambda x, y: 255 * ((x // 4 + y // 4) % 2)):
        prompt = {
            "prompt_string": f"A picture: {runner.marker}\nIt shows",
            "multimodal_data": [png(shade)],
        }
        body = {"prompt": prompt, "stream": True, "n_predict": 16, "temperature": 0}
        events = list(runner.events("/completion", {**body, "cache_prompt": True}))
        counts = events[-1]["timings"]
        assert counts["cache_n"] + counts["prompt_n"] > IMAGE_TOKENS
        texts.append("".join(e["content"] for e in events))
    assert texts[0] != texts[1], "it does not look"
    assert runner.log.errors == []
    (record,) = records()
    assert record["model"] == "sees:latest"


def test_a_head_inside_the_model(
    ollama: Copy, tiny_target: Callable[[str], Path], server_dir: Path, register: Callable[..., Any]
) -> None:
    """MTP: Ollama asks for it where ``draft_num_predict`` is set, and leaves it off elsewhere."""
    model = blob(ollama, "head:latest", tiny_target("qwen35"), draft_num_predict=4)
    register(HOST, ollama.root, "all")
    draft = ["--spec-type", "draft-mtp", "--spec-draft-n-max", "4", "--spec-draft-backend-sampling"]
    runner = ollama.ollama.start(model, num_gpu=0, draft=draft)
    runner.wait_until_running()
    assert runs_ours(runner, server_dir)
    body = {"prompt": list(range(20, 60)), "stream": True, "n_predict": 48, "temperature": 0}
    last = list(runner.events("/completion", body))[-1]
    assert last["timings"]["speculation"]["type"] == "draft-mtp"
    assert last["timings"]["draft_n_accepted"] > 0
    assert runner.log.errors == []
    argv = Path(f"/proc/{runner.process.pid}/cmdline").read_bytes().decode().split("\0")
    most = [argv[i + 1] for i, word in enumerate(argv) if word == "--spec-draft-n-max"]
    assert int(most[-1]) <= 4, "no more than Ollama's user allows"
    (record,) = records()
    assert record["drafter"] == "draft-mtp"


def test_a_model_made_anew_under_its_name(
    ollama: Copy, smollm2: Path, register: Callable[..., Any]
) -> None:
    """What its maker says of drafting reaches our server only by the store, at the next start."""
    register(HOST, ollama.root, "all")

    def drafts(**params: Any) -> bool:
        runner = ollama.ollama.start(blob(ollama, "smol:135m", smollm2, **params), num_gpu=0)
        runner.wait_until_running()
        runner.kill()
        return "srhpm: speculation on" in runner.log.text

    assert drafts(temperature=0.5)
    assert drafts(temperature=0.5)
    assert not drafts(temperature=0.5, draft_num_predict=0)
