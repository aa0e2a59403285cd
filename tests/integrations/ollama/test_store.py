"""Reading a store that nobody vouches for."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ollama_store import KIND, Shelf

from srhpm_plugin.integrations.ollama.store import Entry, Store

HEX = "0123456789abcdef" * 4


def entries(shelf: Shelf) -> dict[str, Entry]:
    return {str(e.name): e for e in Store(shelf.root).entries()}


def test_everything_a_model_can_have(shelf: Shelf) -> None:
    params = {"num_ctx": 16384, "stop": ["<|im_end|>"], "num_batch": 1024}
    shelf.add(
        "qwen3:27b", b"GGUF target", params,
        projector=b"GGUF eyes", draft=b"GGUF drafter", adapter=b"GGUF lora", license=b"MIT",
    )  # fmt: skip
    (entry,) = entries(shelf).values()
    assert entry.unfit is None
    for path, content in (
        (entry.model, b"GGUF target"),
        (entry.projector, b"GGUF eyes"),
        (entry.draft, b"GGUF drafter"),
        (entry.adapters[0], b"GGUF lora"),
    ):
        assert path is not None
        assert path.read_bytes() == content
    assert entry.params == params


def test_what_the_store_says_of_a_model(shelf: Shelf) -> None:
    turns = [{"role": "user", "content": "hi"}]
    manifest = shelf.add(
        "mario:latest",
        b"GGUF",
        {"temperature": 0.5},
        template=b"{{ .Prompt }}",
        system="Vi är bröder.".encode(),
        messages=json.dumps(turns).encode(),
        license=b"MIT",
    )
    words = entries(shelf)["mario:latest"].words
    assert words is not None
    assert words.digest == hashlib.sha256(manifest.read_bytes()).hexdigest()
    assert words.modified == manifest.stat().st_mtime
    assert (words.template, words.system) == ("{{ .Prompt }}", "Vi är bröder.")
    assert words.parameters == {"temperature": 0.5} and words.messages == (turns[0],)
    assert words.licenses == ("MIT",)


@pytest.mark.parametrize("damage", [b"{", b"[1, 2", b"\xff"])
def test_words_that_cannot_be_read_keep_no_model_from_running(shelf: Shelf, damage: bytes) -> None:
    shelf.add("a:latest", b"GGUF", messages=damage)
    entry = entries(shelf)["a:latest"]
    assert entry.unfit is None and entry.words is None


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("registry.ollama.ai/library/llama3.2/latest", "llama3.2:latest"),
        ("registry.ollama.ai/someone/llama3.2/1b", "someone/llama3.2:1b"),
        ("hf.co/bartowski/Qwen-GGUF/Q4_K_M", "hf.co/bartowski/Qwen-GGUF:Q4_K_M"),
    ],
)
def test_names_are_ollamas(shelf: Shelf, path: str, shown: str) -> None:
    shelf.add(path, b"GGUF")
    assert list(entries(shelf)) == [shown]


def test_a_digest_may_be_written_with_a_dash_and_in_capitals(shelf: Shelf) -> None:
    layer = shelf.blob(b"GGUF")
    upper = HEX.upper()
    (shelf.root / "blobs" / f"sha256-{upper}").write_bytes(b"GGUF too")
    for n, digest in enumerate((layer["digest"].replace(":", "-"), f"sha256:{upper}")):
        size = 4 if n == 0 else 8
        layers = [{"mediaType": f"{KIND}model", "digest": digest, "size": size}]
        shelf.write(f"m:{n}", {"layers": layers})
    found = entries(shelf)
    assert [e.unfit for e in found.values()] == [None, None]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"remote_host": "https://ollama.com:443", "remote_model": "big"}, "another machine"),
        ({"model_format": "safetensors"}, "safetensors"),
    ],
)
def test_models_that_no_llama_server_runs(shelf: Shelf, config: dict[str, str], why: str) -> None:
    shelf.add("m:latest", b"GGUF", config=config)
    (entry,) = entries(shelf).values()
    assert why in (entry.unfit or "")
    assert not entry.damaged


def test_a_safetensors_model_by_its_tensors(shelf: Shelf) -> None:
    shelf.add("m:latest", b"GGUF", tensor=b"weights")
    assert "safetensors" in (entries(shelf)["m:latest"].unfit or "")


LONG = 1 << 62
BAD_DIGESTS: dict[str, Any] = {
    "up": "sha256:../../../../etc/passwd",
    "up with the right length": "sha256:" + "../" * 21 + "a",
    "absolute": "/etc/passwd",
    "NUL": f"sha256:{HEX[:-1]}\0",
    "too long": f"sha256:{HEX}0",
    "too short": f"sha256:{HEX[:-1]}",
    "other letters": f"sha256:{HEX[:-1]}g",
    "look-alike digits": f"sha256:{HEX[:-1]}\uff11",
    "look-alike colon": f"sha256\uff1a{HEX}",
    "line break": f"sha256:{HEX}\n",
    "two of them": f"sha256:{HEX}sha256:{HEX}",
    "device": "con",
    "empty": "",
    "number": 5,
    "list": [f"sha256:{HEX}"],
    "none": None,
}


@pytest.mark.parametrize("digest", BAD_DIGESTS.values(), ids=BAD_DIGESTS)
def test_a_digest_that_is_none_names_no_file(shelf: Shelf, digest: object) -> None:
    layers = [{"mediaType": f"{KIND}model", "digest": digest, "size": 4}]
    shelf.write("bad:latest", {"layers": layers})
    shelf.add("good:latest", b"GGUF")
    found = entries(shelf)
    assert found["bad:latest"].damaged
    assert found["bad:latest"].model is None
    assert "digest" in (found["bad:latest"].unfit or "")
    assert found["good:latest"].unfit is None


def test_a_bad_digest_of_a_config_counts_too(shelf: Shelf) -> None:
    layers = [{"mediaType": f"{KIND}model", **shelf.blob(b"GGUF")}]
    shelf.write("bad:latest", {"config": {"digest": "sha256:../x"}, "layers": layers})
    assert entries(shelf)["bad:latest"].damaged


SIZES = (-1, 0, 5, LONG, 1e300, "4", None, True, 4.5)


@pytest.mark.parametrize("size", SIZES, ids=map(str, SIZES))
def test_a_blob_has_the_size_its_manifest_says(shelf: Shelf, size: object) -> None:
    layers = [{"mediaType": f"{KIND}model", **shelf.blob(b"GGUF"), "size": size}]
    shelf.write("bad:latest", {"layers": layers})
    assert "manifest says" in (entries(shelf)["bad:latest"].unfit or "")


def test_a_blob_that_is_not_there_yet(shelf: Shelf) -> None:
    layers = [{"mediaType": f"{KIND}model", "digest": f"sha256:{HEX}", "size": 4}]
    shelf.write("bad:latest", {"layers": layers})
    assert "missing" in (entries(shelf)["bad:latest"].unfit or "")


DEEP = b"[" * 200_000
NOT_MANIFESTS: dict[str, bytes] = {
    "empty": b"",
    "text": b"404 page not found",
    "list": b"[]",
    "cut": b'{"layers": [',
    "deep": DEEP,
    "deep object": b'{"layers":' * 50_000,
    "not UTF-8": b'{"layers": "\xff"}',
    "key twice": b'{"layers": [], "layers": []}',
    "huge": b'{"layers": []}' + b" " * (2 << 20),
    "layers are no list": b'{"layers": {"0": 1}}',
    "layers of numbers": b'{"layers": [1, null, "x", []]}',
    "no layers": b"{}",
    "ten thousand layers": json.dumps({"layers": [{}] * 10_000}).encode(),
    "NaN": b'{"layers": NaN}',
}


@pytest.mark.parametrize("content", NOT_MANIFESTS.values(), ids=NOT_MANIFESTS)
def test_what_is_no_manifest_is_said_and_passed_over(shelf: Shelf, content: bytes) -> None:
    shelf.write("bad:latest", content)
    shelf.add("good:latest", b"GGUF")
    found = entries(shelf)
    assert found["bad:latest"].unfit
    assert found["good:latest"].unfit is None


@pytest.mark.parametrize("raw", [b"[1]", b"{", DEEP, b'"x"'])
def test_parameters_that_are_none(shelf: Shelf, raw: bytes) -> None:
    layers = [
        {"mediaType": f"{KIND}model", **shelf.blob(b"GGUF")},
        {"mediaType": f"{KIND}params", **shelf.blob(raw)},
    ]
    shelf.write("bad:latest", {"layers": layers})
    assert "parameters" in (entries(shelf)["bad:latest"].unfit or "")


BAD_NAMES = (
    "registry.ollama.ai/library/.hidden/latest",
    "registry.ollama.ai/library/m/-srhpm",
    "registry.ollama.ai/library/a b/latest",
    "registry.ollama.ai/library/$(reboot)/latest",
    "registry.ollama.ai/library/m\u2215n/latest",
    "registry.ollama.ai/library/m",
    "registry.ollama.ai/library/m/tag/deeper",
    f"registry.ollama.ai/library/{'m' * 81}/latest",
)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_ollama_would_not_take(shelf: Shelf, name: str) -> None:
    shelf.write(name, b"{}")
    assert not entries(shelf)


links = pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")


@links
def test_a_blob_that_is_a_link_out_of_the_store(shelf: Shelf, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"GGUF")
    shelf.add("bad:latest", b"GGUF")
    path = shelf.path(shelf.blob(b"GGUF"))
    path.unlink()
    path.symlink_to(secret)
    entry = entries(shelf)["bad:latest"]
    assert (entry.model, entry.damaged) == (None, True)
    assert "outside" in (entry.unfit or "")


@links
def test_a_manifest_or_folder_that_is_a_link_out_of_the_store(shelf: Shelf, tmp_path: Path) -> None:
    other = Shelf(tmp_path / "other")
    manifest = other.add("x:latest", b"GGUF")
    library = shelf.root / "manifests" / "registry.ollama.ai" / "library"
    (library / "m").mkdir(parents=True)
    (library / "m" / "latest").symlink_to(manifest)
    (library / "n").symlink_to(manifest.parent, target_is_directory=True)
    assert [e.damaged for e in entries(shelf).values()] == [True, True]


@links
def test_the_whole_store_may_be_a_link(shelf: Shelf, tmp_path: Path) -> None:
    shelf.add("m:latest", b"GGUF")
    (tmp_path / "elsewhere").symlink_to(shelf.root, target_is_directory=True)
    (entry,) = Store(tmp_path / "elsewhere").entries()
    assert entry.unfit is None


@links
def test_circular_links(shelf: Shelf) -> None:
    library = shelf.root / "manifests" / "registry.ollama.ai" / "library"
    library.mkdir(parents=True)
    (library / "m").symlink_to(library, target_is_directory=True)
    (library / "n").symlink_to(library / "n")
    assert all(entry.damaged for entry in entries(shelf).values())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes there")
@pytest.mark.timeout(30)
def test_a_pipe_stops_nobody(shelf: Shelf) -> None:
    library = shelf.root / "manifests" / "registry.ollama.ai" / "library" / "m"
    library.mkdir(parents=True)
    os.mkfifo(library / "latest")
    assert entries(shelf)["m:latest"].damaged


def test_no_store(tmp_path: Path) -> None:
    assert not list(Store(tmp_path / "gone").entries())


def test_only_a_blobs_path_tells_a_store(shelf: Shelf) -> None:
    path = shelf.path(shelf.blob(b"GGUF"))
    assert Store.of_blob(path) == Store(shelf.root)
    assert Store.of_blob(path.with_name("model.gguf")) is None
    assert Store.of_blob(shelf.root / path.name) is None


def test_host_models(
    shelf: Shelf, tmp_path: Path, copy: Callable[..., Path], monkeypatch: Any
) -> None:
    """As `srhpm-plugin models` gets them."""
    from srhpm_plugin.integrations.ollama import Ollama

    monkeypatch.setenv("OLLAMA_MODELS", str(shelf.root))
    shelf.add("m:latest", b"GGUF", {"num_ctx": 32768}, projector=b"GGUF p")
    shelf.add("m:latest-srhpm", b"GGUF", {"num_batch": 511})
    shelf.write("bad:latest", b"{")
    host = Ollama()
    (found,) = host.find(copy(tmp_path / "tree"))
    models = {m.name: m for m in host.models(found)}
    assert (models["m:latest"].ctx, models["m:latest"].twin) == (32768, False)
    assert models["m:latest"].mmproj is not None
    assert models["m:latest-srhpm"].twin
    assert models["m:latest-srhpm"].path == models["m:latest"].path
    assert "manifest" in (models["bad:latest"].unfit or "")
