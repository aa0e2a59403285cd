"""What Ollama's starts mean: names, twins, drafters, and what is left to its own server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from ollama_store import Shelf

from srhpm_plugin.host import HandOver, HostCall, Mode, Translated
from srhpm_plugin.integrations.ollama import Ollama
from srhpm_plugin.plan import HostRequest

HOST = Ollama()
# llm/llama_server.go, startLlamaServer: what follows the model, port and host
USUAL = (
    "--no-webui --offline -c 4096 -np 1 --log-verbosity 4 --no-log-prefix --no-log-timestamps "
    "--no-jinja --chat-template chatml --load-mode none --flash-attn auto -b 512 -ub 512 "
    "--context-shift --keep 4"
)


@pytest.fixture
def start(shelf: Shelf, smollm2: Path) -> Callable[..., Translated | HandOver]:
    """``start(mode, batch, *more)``: what a start of SmolLM2's blob means."""

    def translate(
        mode: Mode = "all", batch: int = 512, *more: str, request: HostRequest | None = None
    ) -> Translated | HandOver:
        blob = shelf.path(shelf.blob(smollm2))
        words = USUAL.replace("512", str(batch)).split()
        argv = ("--model", str(blob), "--port", "40000", "--host", "127.0.0.1", *words, *more)
        return HOST.translate(
            HostCall("ollama", argv, {}, {}, mode), request or HostRequest(blob, ctx=4096)
        )

    return translate


def ours(told: Translated | HandOver) -> Translated:
    assert isinstance(told, Translated), told
    return told


def test_a_name(start: Callable[..., Translated | HandOver], shelf: Shelf, smollm2: Path) -> None:
    assert ours(start()).model.startswith("sha256-")  # no manifest names it
    shelf.add("smol:135m", smollm2)
    told = ours(start())
    assert (told.model, told.picked, told.overruled) == ("smol:135m", False, ())


def test_names_that_share_a_blob_are_told_by_their_parameters(
    start: Callable[..., Translated | HandOver], shelf: Shelf, smollm2: Path
) -> None:
    blob = shelf.path(shelf.blob(smollm2))
    shelf.add("a:plain", smollm2, {"temperature": 0.5})
    shelf.add("b:short", smollm2, {"num_ctx": 1024, "draft_num_predict": 0})
    shelf.add("c:long", smollm2, {"num_ctx": 8192, "num_thread": 3})
    shelf.add("d:wide", smollm2, {"num_batch": 1024})
    shelf.add("e:odd", smollm2, {"num_ctx": "many", "num_gpu": [1]})
    cases = (
        ("a:plain", 512, HostRequest(blob, ctx=4096)),
        ("b:short", 512, HostRequest(blob, ctx=1024)),
        ("c:long", 512, HostRequest(blob, ctx=8192, threads=3)),
        ("d:wide", 1024, HostRequest(blob, ctx=4096)),
    )
    for name, batch, request in cases:
        told = ours(start("all", batch, request=request))
        assert told.model == name
        assert told.request.draft == ("none" if name == "b:short" else "auto")


def test_names_that_share_a_blob_are_told_by_their_files(
    start: Callable[..., Translated | HandOver], shelf: Shelf, smollm2: Path
) -> None:
    projector, adapter = b"of pictures", b"a way to talk"
    shelf.add("a:sees", smollm2, projector=projector)
    shelf.add("b:plain", smollm2)
    shelf.add("c:tuned", smollm2, adapter=adapter)
    cases: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("a:sees", ("--mmproj", str(shelf.path(shelf.blob(projector))))),
        ("b:plain", ()),
        ("c:tuned", ("--lora", str(shelf.path(shelf.blob(adapter))))),
    )
    for name, said in cases:
        told = ours(start("all", 512, *said))
        assert told.model == name
        assert len(told.rests_on) == 3, "whichever of them changes, it is asked anew"


@pytest.mark.parametrize("batch", [63, 255, 511, 1023, 2047])
def test_a_twin_by_its_batch(
    start: Callable[..., Translated | HandOver], shelf: Shelf, smollm2: Path, batch: int
) -> None:
    shelf.add("smol:135m", smollm2)
    shelf.add("smol:135m-srhpm", smollm2, {"num_batch": batch})
    twin = ours(start("select", batch))
    assert (twin.model, twin.picked) == ("smol:135m-srhpm", True)
    assert twin.overruled == ("-b", "-ub")  # the mark is no wish
    base = ours(start("select", 1024))
    assert (base.model, base.picked) == ("smol:135m", False)
    assert ours(start("all", 1024)).model == "smol:135m"


def test_embeddings_are_left_to_ollama(start: Callable[..., Translated | HandOver]) -> None:
    assert isinstance(start("all", 512, "--embedding"), HandOver)
    assert isinstance(start("select", 511, "--embedding"), HandOver)


def test_a_projector_in_the_model_s_own_file(
    start: Callable[..., Translated | HandOver], shelf: Shelf, smollm2: Path, tmp_path: Path
) -> None:
    blob = shelf.path(shelf.blob(smollm2))
    told = start(request=HostRequest(blob, mmproj=blob))
    assert isinstance(told, HandOver)
    assert "projector" in told.reason
    other = tmp_path / "eyes"
    other.write_bytes(b"GGUF")
    assert isinstance(start(request=HostRequest(blob, mmproj=other)), Translated)


def test_smaller_models_of_the_store_may_draft(
    start: Callable[..., Translated | HandOver], shelf: Shelf, smollm2: Path
) -> None:
    shelf.add("tiny:latest", b"GGUF tiny")
    shelf.add("small:latest", b"GGUF a bit larger")
    shelf.add("small:other", b"GGUF a bit larger")
    shelf.add("large:latest", b"GGUF" + bytes(smollm2.stat().st_size))
    shelf.write("bad:latest", b"{")
    shelf.blob(b"GGUF no model needs it")
    found = [p.read_bytes() for p in ours(start()).drafters]
    assert found == [b"GGUF tiny", b"GGUF a bit larger"]


def test_a_draft_of_the_common_kind_drafts_as_what_it_is(
    start: Callable[..., Translated | HandOver], shelf: Shelf, smollm2: Path
) -> None:
    blob = shelf.path(shelf.blob(smollm2))
    asked = HostRequest(blob, draft="none")  # as the core reads draft-mtp with a file
    how = ("--spec-type", "draft-mtp", "--spec-draft-n-max", "4", "--spec-draft-backend-sampling")
    told = ours(start("all", 512, *how, "--spec-draft-model", str(blob), request=asked))
    assert told.request.draft == str(blob)
    # Anything else stays as Ollama has it.
    junk = shelf.path(shelf.blob(b"GGUF junk"))
    for more in (
        (*how, "--spec-draft-model", str(junk)),
        how,
        ("--spec-type", "draft-dflash", "--spec-draft-model", str(blob)),
    ):
        assert ours(start("all", 512, *more, request=asked)).request == asked


def test_no_drafting_where_the_model_says_so(
    start: Callable[..., Translated | HandOver], shelf: Shelf, smollm2: Path
) -> None:
    shelf.add("smol:135m", smollm2, {"draft_num_predict": 0})
    assert ours(start()).request.draft == "none"


def test_what_was_asked_for_stays(
    start: Callable[..., Translated | HandOver], shelf: Shelf, smollm2: Path
) -> None:
    blob = shelf.path(shelf.blob(smollm2))
    asked = HostRequest(blob, ctx=2048, parallel=3, threads=5, gpu_layers=7, cache_type_k="q8_0")
    assert ours(start("select", 511, request=asked)).request == asked


def test_a_model_outside_a_store(
    start: Callable[..., Translated | HandOver], smollm2: Path
) -> None:
    told = ours(start(request=HostRequest(smollm2)))
    assert (told.model, told.drafters) == (smollm2.name, ())


def test_a_damaged_store_keeps_no_model_from_running(
    start: Callable[..., Translated | HandOver], shelf: Shelf
) -> None:
    before = ours(start())
    shelf.write("bad:latest", b"[" * 200_000)
    (shelf.root / "manifests" / "junk").write_bytes(b"x")
    assert ours(start()) == replace(before)
