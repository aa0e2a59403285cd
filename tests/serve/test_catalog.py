"""Names: our own, hosts', files'; and the store of our own."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from serve_parts import served

from srhpm_plugin.errors import UserError
from srhpm_plugin.host import HostModel, ModelWords
from srhpm_plugin.planner.hosted import Hosted
from srhpm_plugin.serve import catalog as module
from srhpm_plugin.serve.catalog import ModelCatalog
from srhpm_plugin.serve.interfaces import DigestMismatchError, NoSuchModelError, NotOursError
from srhpm_plugin.serve.sizes import model_bytes
from srhpm_plugin.serve.store import OwnStore


class Machine:
    """Hosts and folders to be looked at."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts: list[Hosted] = []
        self.files: list[Path] = []
        self.looks = 0
        self.gate = threading.Event()
        self.gate.set()

    def look(self) -> tuple[Sequence[Hosted], Sequence[Path], Sequence[str]]:
        self.looks += 1
        assert self.gate.wait(10)
        return list(self.hosts), list(self.files), ["jan cannot be asked"]

    def file(self, name: str, content: bytes = b"GGUF") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> OwnStore:
    return OwnStore(tmp_path / "store")


@pytest.fixture
def catalog(machine: Machine, store: OwnStore) -> ModelCatalog:
    return ModelCatalog(store, machine.look)


def test_names_of_hosts_and_files(machine: Machine, catalog: ModelCatalog) -> None:
    digest = "0123456789abcdef" * 4
    blob = machine.file(f"blobs/sha256-{digest}")
    machine.hosts = [
        Hosted("ollama", HostModel("qwen3:latest", blob, ctx=4096, unfit=None)),
        Hosted("ollama", HostModel("llava:7b", blob, unfit="no projector")),
        Hosted("jan", HostModel("qwen3:latest", machine.file("jan/model.gguf", b"GGUF12"))),
    ]
    machine.files = [
        blob,  # a host's model is listed under its name only
        machine.file("one/Tiny-Q4.gguf"),
        machine.file("two/Tiny-Q4.gguf"),
        machine.file("models--org--repo/snapshots/abc/Tiny-Q4.gguf"),
    ]
    names = {model.name: model for model in catalog.all()}
    assert set(names) == {
        "qwen3:latest",
        "llava:7b",
        "jan/qwen3:latest",
        "Tiny-Q4",
        "two/Tiny-Q4",
        "org/repo/Tiny-Q4",
    }
    assert names["qwen3:latest"].digest == digest and names["qwen3:latest"].ctx == 4096
    assert names["llava:7b"].unfit == "no projector"
    assert names["jan/qwen3:latest"].nbytes == 6 and len(names["jan/qwen3:latest"].digest) == 64
    assert names["Tiny-Q4"].digest != names["two/Tiny-Q4"].digest
    assert catalog.troubles == ("jan cannot be asked",)


def test_what_a_store_says_of_its_model(machine: Machine, catalog: ModelCatalog) -> None:
    words = ModelWords(
        "b" * 64,
        1e9,
        template="{{ .Prompt }}",
        system="Be brief.",
        parameters={"temperature": 0.1},
        messages=({"role": "user", "content": "hi"},),
        licenses=("MIT",),
    )
    machine.hosts = [Hosted("ollama", HostModel("a:latest", machine.file("a"), words=words))]
    (model,) = catalog.all()
    assert (model.digest, model.modified.timestamp()) == ("b" * 64, 1e9)
    assert (model.template, model.system) == ("{{ .Prompt }}", "Be brief.")
    assert model.parameters == {"temperature": 0.1} and model.licenses == ("MIT",)
    assert model.messages == ({"role": "user", "content": "hi"},)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("qwen3:latest", "qwen3:latest"),
        ("qwen3", "qwen3:latest"),
        ("Qwen3", "qwen3:latest"),
        ("Tiny-Q4", "Tiny-Q4"),
        ("tiny-q4:latest", "Tiny-Q4"),
        ("tiny-q4.gguf", "Tiny-Q4"),
    ],
)
def test_what_clients_mean(machine: Machine, catalog: ModelCatalog, asked: str, meant: str) -> None:
    machine.hosts = [Hosted("ollama", HostModel("qwen3:latest", machine.file("a.gguf")))]
    machine.files = [machine.file("Tiny-Q4.gguf")]
    assert catalog.find(asked).name == meant


@pytest.mark.parametrize("asked", ["", "nobody", "../Tiny-Q4", "/etc/passwd", "qwen3:8b", "\0"])
def test_what_nobody_is_called(machine: Machine, catalog: ModelCatalog, asked: str) -> None:
    machine.files = [machine.file("Tiny-Q4.gguf"), machine.file("qwen3.gguf")]
    with pytest.raises(NoSuchModelError):
        catalog.find(asked)


def test_a_path_is_no_name(machine: Machine, catalog: ModelCatalog) -> None:
    machine.files = [machine.file("Tiny-Q4.gguf")]
    with pytest.raises(NoSuchModelError):
        catalog.find(str(machine.files[0]))


def test_listings_never_wait_for_a_slow_disk(
    machine: Machine, catalog: ModelCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.files = [machine.file("a.gguf")]
    assert [m.name for m in catalog.all()] == ["a"]
    monkeypatch.setattr(module, "_FRESH_S", 0.0)
    machine.files.append(machine.file("b.gguf"))
    machine.gate.clear()
    assert [m.name for m in catalog.all()] == ["a"]  # while the disk is looked at
    catalog.all()
    assert machine.looks == 2
    machine.gate.set()
    deadline = time.monotonic() + 10
    while len(catalog.all()) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert {m.name for m in catalog.all()} == {"a", "b"}


def test_what_is_known_is_known_without_a_look(machine: Machine, catalog: ModelCatalog) -> None:
    machine.files = [machine.file("tiny.gguf")]
    assert catalog.known("tiny") is None and machine.looks == 0
    catalog.all()
    machine.gate.clear()
    found = catalog.known("Tiny")
    assert found is not None and found.path == machine.files[0]
    assert catalog.known("huge") is None and machine.looks == 1


def test_a_new_model_is_found_by_its_name(
    machine: Machine, catalog: ModelCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.all()
    machine.files = [machine.file("new.gguf")]
    with pytest.raises(NoSuchModelError):
        catalog.find("new")  # who asks for what there is not must not keep the disk busy
    assert machine.looks == 1
    monkeypatch.setattr(module, "_AGAIN_S", 0.0)
    assert catalog.find("new").name == "new"


def test_a_damaged_configuration_is_a_trouble_and_no_end(
    store: OwnStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged() -> None:
        raise UserError("cannot read config.toml", "it is damaged", "mend it")

    monkeypatch.setattr(module, "survey", damaged)
    catalog = ModelCatalog(store)
    assert catalog.all() == []
    assert "config.toml" in catalog.troubles[0]


# -- our own ---------------------------------------------------------------------------------------


def test_ours_come_first_and_are_kept(
    machine: Machine, store: OwnStore, catalog: ModelCatalog
) -> None:
    path, draft = machine.file("model.gguf", b"GGUF1234"), machine.file("draft.gguf")
    machine.hosts = [Hosted("ollama", HostModel("mario:latest", machine.file("other.gguf")))]
    assert catalog.find("mario").origin == "ollama"
    made = store.save(
        "mario:latest",
        served(
            "x",
            path,
            drafter=draft,
            system="You are Mario.",
            template="{{ .Prompt }}",
            parameters={"temperature": 0.5, "stop": ["a", "b"]},
            messages=({"role": "user", "content": "hi"},),
            licenses=("MIT",),
            ctx=2048,
        ),
    )
    found = catalog.find("mario")
    assert found == made == OwnStore(store.root).models()[0]
    assert (found.origin, found.nbytes, found.drafter, found.ctx) == ("own", 12, draft, 2048)
    assert found.parameters == {"temperature": 0.5, "stop": ["a", "b"]}
    assert found.messages == ({"role": "user", "content": "hi"},) and found.licenses == ("MIT",)
    again = store.save("mario:latest", replace(made, system="You are Luigi."))
    assert catalog.find("mario").system == "You are Luigi." and again.digest != made.digest
    store.delete(catalog.find("mario"))
    assert catalog.find("mario").origin == "ollama"
    assert path.exists() and draft.exists()
    with pytest.raises(NotOursError, match="ollama"):
        store.delete(catalog.find("mario"))


@pytest.mark.parametrize("name", ["../../x", "CON", "a/b:c", "Ä" * 300, "a\\b", "é", "\udcff"])
def test_no_name_becomes_a_path(store: OwnStore, machine: Machine, name: str) -> None:
    model = store.save(name, served("x", machine.file("model.gguf")))
    assert model.name == name
    inside = [p for p in machine.folder.rglob("*") if p.is_file()]
    assert {p.parent for p in inside} == {machine.folder, store.root / "models"}
    store.delete(model)
    assert store.models() == ()


def test_a_file_that_is_gone_says_so(
    store: OwnStore, machine: Machine, catalog: ModelCatalog
) -> None:
    path = machine.file("model.gguf")
    store.save("a", served("x", path))
    path.unlink()
    unfit = OwnStore(store.root).models()[0].unfit
    assert unfit is not None and "model.gguf is gone" in unfit


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"name": 1, "path": 2}', b"\xff"])
def test_damaged_entries_are_passed_over(store: OwnStore, machine: Machine, content: bytes) -> None:
    store.save("good", served("x", machine.file("model.gguf")))
    (store.root / "models" / "bad.json").write_bytes(content)
    assert [m.name for m in OwnStore(store.root).models()] == ["good"]


async def _chunks(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def _broken() -> AsyncIterator[bytes]:
    yield b"GG"
    raise ConnectionResetError


def test_blobs(store: OwnStore) -> None:
    content = b"GGUF" + bytes(100)
    digest = sha256(content).hexdigest()
    assert store.blob(digest) is None
    with pytest.raises(DigestMismatchError):
        asyncio.run(store.receive(digest, _chunks(b"something else")))
    with pytest.raises(ConnectionResetError):
        asyncio.run(store.receive(digest, _broken()))
    assert list((store.root / "blobs").iterdir()) == []  # nothing is left of either
    asyncio.run(store.receive(digest, _chunks(content[:10], content[10:])))
    path = store.blob(digest)
    assert path is not None and path.read_bytes() == content
    for nonsense in ("../../etc/passwd", digest.upper(), digest[:-1], "sha256:" + digest):
        with pytest.raises(ValueError, match="no digest"):
            store.blob(nonsense)


def test_blobs_go_with_the_last_model_that_needs_them(store: OwnStore) -> None:
    content = b"GGUF"
    digest = sha256(content).hexdigest()
    asyncio.run(store.receive(digest, _chunks(content)))
    path = store.blob(digest)
    assert path is not None
    a, b = (store.save(name, served("x", path)) for name in "ab")
    store.delete(a)
    assert path.exists()
    store.delete(b)
    assert not path.exists()


def test_uploads_that_never_became_a_model_go_after_a_day(store: OwnStore) -> None:
    blobs = store.root / "blobs"
    blobs.mkdir(parents=True)
    kept = blobs / f"sha256-{'a' * 64}"
    names = ["incoming-x", f"sha256-{'b' * 64}", f"sha256-{'c' * 64}", "somebody.else"]
    for path in (kept, *(blobs / name for name in names)):
        path.write_bytes(b"GGUF")
        os.utime(path, (0, 0))
    (blobs / names[2]).touch()  # it may be about to become one
    store.save("a", served("x", kept))
    store.prune()
    assert {p.name for p in blobs.iterdir()} == {kept.name, names[2], names[3]}


def test_split_models_are_counted_whole(tmp_path: Path) -> None:
    for i in (1, 2, 3):
        (tmp_path / f"m-0000{i}-of-00003.gguf").write_bytes(bytes(i))
    assert model_bytes(tmp_path / "m-00001-of-00003.gguf") == 6
    assert model_bytes(tmp_path / "m-00001-of-99999.gguf") == 0
    assert model_bytes(tmp_path / "missing.gguf") == 0
