"""LM Studio's models, their saved settings, and names that must lead nowhere."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.host import HostCall, HostModel, Translated
from srhpm_plugin.integrations.lmstudio import LMStudio
from srhpm_plugin.plan import HostRequest

HOST = LMStudio()
FILE = "lmstudio-community/Small-GGUF/Small-Q4_K_M.gguf"
DRAFT = "lmstudio-community/Tiny-GGUF/Tiny.gguf"


@pytest.fixture
def stocked(home: Any, damaged_header: bytes) -> Any:
    """A home with two models, one of them with a projector."""
    for name in (FILE, DRAFT):
        path = home.path / "models" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(damaged_header)
    (home.path / "models" / FILE).with_name("mmproj-Small-f16.gguf").write_bytes(damaged_header)
    return home


@pytest.fixture(scope="session")
def damaged_header() -> bytes:
    """Enough of a model for it to be taken for one."""
    return b"GGUF\3\0\0\0" + bytes(64)


def save(home: Any, name: str, fields: dict[str, Any]) -> Path:
    """Saves load settings for a model, as LM Studio does."""
    folder = home.path / ".internal" / "user-concrete-model-default-config"
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [{"key": key, "value": value} for key, value in fields.items()]
    path.write_text(json.dumps({"preset": "", "load": {"fields": entries}}))
    return path


def virtual(home: Any, name: str, text: str) -> None:
    """Adds a virtual model."""
    folder = home.path / "hub" / "models" / name
    folder.mkdir(parents=True)
    (folder / "model.yaml").write_text(text)


def listed(home: Any) -> dict[str, HostModel]:
    (found,) = HOST.find(home.path)
    return {model.name: model for model in HOST.models(found)}


def test_models(stocked: Any) -> None:
    models = listed(stocked)
    assert sorted(models) == [FILE, DRAFT]
    model = models[FILE]
    assert model.path == stocked.path / "models" / FILE
    assert model.mmproj == model.path.with_name("mmproj-Small-f16.gguf")
    assert (model.ctx, model.drafter, model.unfit) == (None, None, None)
    assert models[DRAFT].mmproj is None


def test_the_models_folder_is_the_users_choice(stocked: Any, tmp_path: Path) -> None:
    shutil.move(stocked.path / "models", tmp_path / "big disk")
    settings = {"downloadsFolder": str(tmp_path / "big disk")}
    (stocked.path / "settings.json").write_text(json.dumps(settings))
    assert listed(stocked)[FILE].path == tmp_path / "big disk" / FILE


@pytest.mark.parametrize("folder", [7, "", "models", "a\0b", None])
def test_odd_models_folders(stocked: Any, folder: object) -> None:
    (stocked.path / "settings.json").write_text(json.dumps({"downloadsFolder": folder}))
    assert sorted(listed(stocked)) == [FILE, DRAFT]


def test_saved_settings(stocked: Any) -> None:
    save(
        stocked,
        FILE,
        {
            "llm.load.contextLength": 32768,
            "llm.load.llama.speculativeDecoding.draftSimple": True,
            "llm.load.llama.speculativeDecoding.draftModel": DRAFT,
        },
    )
    model = listed(stocked)[FILE]
    assert model.ctx == 32768
    assert model.drafter == stocked.path / "models" / DRAFT


@pytest.mark.parametrize(
    ("value", "ctx"),
    [
        ({"checked": True, "value": 4096}, 4096),
        ({"checked": False, "value": 4096}, None),
        (-1, None),
        (1 << 40, None),
        ("4096", None),
        (True, None),
    ],
)
def test_context_lengths(stocked: Any, value: object, ctx: int | None) -> None:
    save(stocked, FILE, {"llm.load.contextLength": value})
    assert listed(stocked)[FILE].ctx == ctx


@pytest.mark.parametrize(
    "name", ["../../../etc/passwd", "/etc/passwd", "nobody/nothing.gguf", "", 3, "a\0b", "C:\\x"]
)
def test_draft_models_that_are_none(stocked: Any, name: object) -> None:
    save(stocked, FILE, {"llm.load.llama.speculativeDecoding.draftModel": name})
    assert listed(stocked)[FILE].drafter is None


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"load": 3}', b"\xff\xfe", b"[" * 99999])
def test_damaged_settings_are_passed_over(stocked: Any, content: bytes) -> None:
    save(stocked, FILE, {}).write_bytes(content)
    assert listed(stocked)[FILE].ctx is None


def test_virtual_models(stocked: Any) -> None:
    virtual(
        stocked,
        "acme/small",
        "model: acme/small\n"
        "base:\n"
        "  - key: nobody/nothing\n"
        "  - key: lmstudio-community/Small-GGUF\n"
        "    sources: [{type: huggingface, user: lmstudio-community, repo: Small-GGUF}]\n"
        "config:\n  load:\n    fields:\n      - {key: llm.load.contextLength, value: 8192}\n",
    )
    virtual(stocked, "acme/of-it", "model: acme/of-it\nbase: acme/small\n")
    models = listed(stocked)
    assert models["acme/small"].path == stocked.path / "models" / FILE
    assert models["acme/small"].ctx == 8192
    assert models["acme/of-it"].path == stocked.path / "models" / FILE
    save(stocked, "acme/small", {"llm.load.contextLength": 1024})
    assert listed(stocked)["acme/small"].ctx == 1024


@pytest.mark.parametrize(
    "text",
    [
        "model: other/name\nbase: lmstudio-community/Small-GGUF\n",  # passes for another
        "model: acme/x\nbase: ../../../../etc\n",
        "model: acme/x\nbase: /etc/passwd\n",
        "model: acme/x\nbase: acme/x\n",  # itself
        "model: acme/x\nbase: [{key: [1]}, 3, {}]\n",
        "model: &a acme/x\nbase: *a\n",
        "- 1\n",
        "{" * 3000,
        "model: acme/x\nbase: lmstudio-community/Small-GGUF\n" + "# " * 200_000,
    ],
)
def test_hostile_virtual_models(stocked: Any, text: str) -> None:
    virtual(stocked, "acme/x", text)
    assert sorted(listed(stocked)) == [FILE, DRAFT]


def call(home: Any) -> HostCall:
    return HostCall("lm-studio", ("--model", "x"), {}, {"home": str(home.path)}, "all")


def test_translate_adds_name_and_drafter(stocked: Any) -> None:
    save(stocked, FILE, {"llm.load.llama.speculativeDecoding.draftModel": DRAFT})
    request = HostRequest(stocked.path / "models" / FILE, ctx=4096)
    assert HOST.translate(call(stocked), request) == Translated(
        request, FILE, (stocked.path / "models" / DRAFT,)
    )


def test_translate_a_file_from_elsewhere(stocked: Any, tmp_path: Path) -> None:
    request = HostRequest(tmp_path / "x.gguf")
    assert HOST.translate(call(stocked), request) == Translated(request, "x.gguf")
    bare = HostCall("lm-studio", (), {}, {}, "all")
    assert HOST.translate(bare, request) == Translated(request, "x.gguf")


def test_many_models(stocked: Any, make_home: Callable) -> None:
    """A split model is one, its later parts are none of their own."""
    folder = stocked.path / "models" / "big" / "Big-GGUF"
    folder.mkdir(parents=True)
    header = (stocked.path / "models" / FILE).read_bytes()
    for part in (1, 2):
        (folder / f"Big-0000{part}-of-00002.gguf").write_bytes(header)
    assert sorted(name for name in listed(stocked) if name.startswith("big")) == [
        "big/Big-GGUF/Big-00001-of-00002.gguf"
    ]


def test_virtual_models_of_each_other(stocked: Any) -> None:
    """Twenty that name each other: each is looked at once, not in every order."""
    names = [f"acme/v{i}" for i in range(20)]
    for name in names:
        virtual(stocked, name, f"model: {name}\nbase: {json.dumps([{'key': n} for n in names])}\n")
    assert sorted(listed(stocked)) == [FILE, DRAFT]
