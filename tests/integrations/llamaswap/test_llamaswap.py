"""llama-swap: its configuration read, changed in our places only, and put back byte for byte."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from srhpm_plugin.dropin.note import Note
from srhpm_plugin.errors import UserError
from srhpm_plugin.host import HostCall, Installation, Mode, Tools, Translated
from srhpm_plugin.integrations.llamaswap import LlamaSwap, config, edit, places
from srhpm_plugin.plan import HostRequest

HOST = LlamaSwap()
EXE = ".exe" if sys.platform == "win32" else ""

CONFIG = """\
# mine
macros:
  "latest": >
    {bin}/llama-server{exe}
    --port ${{PORT}}   # not a comment here
  bin: '{bin}'

healthCheckTimeout: 500 # long
models:
  # the first
  "qwen":   # note
    cmd: |
      # {bin}/llama-server{exe} was older
      ${{latest}}
      -m {models}/${{MODEL_ID}}.gguf \\
      -c 8192
    aliases: [q, "q2"]
    name: 'Qwen'
    env:
      - "A=b"
    filters:
      setParamsByID:
        "${{MODEL_ID}}:high": {{temperature: 1}}
        "plain-high": {{temperature: 1}}
  plain:
    cmd: ${{bin}}/llama-server{exe} --port ${{PORT}} -m {models}/other.gguf --embeddings
    useModelName: yes

  'quoted': {{cmd: "'{bin}/llama-server{exe}' --port ${{PORT}}"}}
  docker:
    cmd: docker run llama-server
  # behind the last

groups: {{g: {{members: [qwen]}}}}
"""

BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 8)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration with macros, quotes and comments, over two models."""
    programs, models = tmp_path / "bin dir", tmp_path / "models"
    programs.mkdir()
    models.mkdir()
    (programs / f"llama-server{EXE}").write_text("#!/bin/sh\n")
    (programs / f"llama-server{EXE}").chmod(0o755)
    for name in ("qwen", "other"):
        (models / f"{name}.gguf").write_bytes(b"GGUF")
    text = CONFIG.format(bin="/opt/llama", models=models.as_posix(), exe=EXE)
    path = tmp_path / "swap" / "config.yaml"
    path.parent.mkdir()
    path.write_bytes(text.encode())
    return path


def found_in(path: Path) -> Installation:
    (found,) = HOST.find(path)
    return found


def data(path: Path) -> dict:
    return dict(YAML(typ="safe", pure=True).load(path.read_text()))


def test_twins(file: Path, install: Callable, tree: Callable, tools: Tools) -> None:
    before, text, old = tree(file.parent), file.read_text(), data(file)
    assert not HOST.registered(found_in(file))
    done = install(HOST, found_in(file), "select")
    assert HOST.registered(found_in(file))
    new = data(file)
    twins = {name: new["models"].pop(name) for name in list(new["models"]) if "srhpm" in name}
    assert new == old
    above, _, rest = file.read_text().partition("  # srhpm: begin")
    assert text.startswith(above)
    assert rest.endswith(text[len(above) :])
    assert sorted(twins) == ["plain-srhpm", "quoted-srhpm", "qwen-srhpm"]
    qwen = twins["qwen-srhpm"]
    words = config.split("\n".join(c for c in qwen["cmd"].split("\n") if c[:1] != "#"))
    note = Note.parse(Note.path_for(Path(words[0])).read_bytes())
    assert Path(words[0]).read_bytes() == tools.dropin.read_bytes()
    assert Path(words[0]).is_relative_to(tools.state)
    assert (note.host, note.mode) == ("llama-swap", "select")
    assert f"{file.parent.parent.as_posix()}/models/qwen.gguf" in words  # not of the twin's name
    assert "${PORT}" in words
    assert "aliases" not in qwen
    assert list(qwen["filters"]["setParamsByID"]) == ["${MODEL_ID}:high"]
    assert qwen["name"] == "Qwen (SR-HPM)"
    assert qwen["metadata"] == {"srhpm": {"twin_of": "qwen"}}
    assert done.undo() == []
    assert tree(file.parent) == before


def test_programs_replaced(file: Path, install: Callable, tree: Callable) -> None:
    before, old = tree(file.parent), data(file)
    done = install(HOST, found_in(file), "all")
    new = data(file)
    entries = list(config.entries(config.parse(file.read_text())))
    assert [e.name for e in entries] == ["qwen", "plain", "quoted"]
    assert all(edit.note_of(e.program) for e in entries)
    assert f"# /opt/llama/llama-server{EXE} was older" in file.read_text()
    assert new["models"]["docker"] == old["models"]["docker"]
    assert new["models"]["qwen"] == old["models"]["qwen"]  # its program is the macro's
    assert new["macros"]["latest"].endswith("--port ${PORT}   # not a comment here\n")
    assert done.undo() == []
    assert tree(file.parent) == before


@pytest.mark.parametrize("mode", ["all", "select"])
def test_ours_is_taken_out_of_a_file_that_the_user_changed(
    file: Path, install: Callable, mode: Mode
) -> None:
    original = file.read_text()
    done = install(HOST, found_in(file), mode)

    def change(text: str) -> str:
        text = text.replace("healthCheckTimeout: 500 # long", "healthCheckTimeout: 20")
        return text + "# more of mine\nstartPort: 9000\n"

    file.write_text(change(file.read_text()))
    done.undo()
    new = data(file)
    assert "srhpm" not in file.read_text()
    # Quotes that a path of ours needed may stay; in mode select not a byte does.
    assert new == YAML(typ="safe", pure=True).load(change(original))
    if mode == "select":
        assert file.read_text() == change(original)


def test_an_edited_block_of_ours_stays(file: Path, install: Callable) -> None:
    done = install(HOST, found_in(file), "select")
    file.write_text(file.read_text().replace("  # srhpm: end\n", ""))
    changed = file.read_text()
    assert any("config.yaml" in line for line in done.undo())
    assert file.read_text() == changed


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n# the end\n\n", "\n...\n"])
@pytest.mark.parametrize(
    "last",
    [
        "    cmd: llama-server --port 1",
        "    cmd: |\n      llama-server\n      --port 1",
        "    cmd: |+\n      llama-server --port 1\n\n",
        '    cmd: "llama-server --port 1"  # a comment',
        "    cmd: llama-server\n    env:\n    - A=b",
        "    cmd: llama-server\n    macros: {}",
    ],
)
def test_whatever_ends_the_models(last: str, end: str, newline: str) -> None:
    text = f"models:\n  a:\n{last}{end}".replace("\n", newline)
    new = edit.with_twins(text, {"a": "/ours/llama-server"})
    assert list(config.load(new)["models"]) == ["a", "a-srhpm"]
    assert config.load(new)["models"]["a-srhpm"]["cmd"].startswith("/ours/llama-server")
    assert (edit.without_us(new) or "").rstrip() == text.rstrip()
    assert "\r" not in new.replace("\r\n", "")


@pytest.mark.parametrize("style", ["{}", '"{}"', "'{}'", "|\n      {}", ">-\n      {}"])
@pytest.mark.parametrize(
    "word", ["/ours/llama-server", "'/our own/llama-server'", r"C:\ours\llama-server.exe"]
)
def test_a_program_in_each_style(style: str, word: str) -> None:
    text = f"models:\n  a:\n    cmd: {style.format('/x/llama-server --port 1')}\n"
    (entry,) = config.entries(config.parse(text))
    new = edit.with_words(text, [(entry.site, word)])
    assert config.load(new)["models"]["a"]["cmd"].strip() == f"{word} --port 1"


def test_merged_settings_and_aliases() -> None:
    text = (
        "x: &base\n  cmd: /x/llama-server --port ${PORT} -m /m/a.gguf\n  ttl: 5\n"
        "models:\n  a:\n    <<: *base\n  b:\n    <<: *base\n    ttl: 6\n"
    )
    new = edit.with_twins(text, {"a": "/ours/s", "b": "/ours/s"})
    models = YAML(typ="safe", pure=True).load(new)["models"]
    assert (models["b-srhpm"]["ttl"], models["a-srhpm"]["ttl"]) == (6, 5)
    assert edit.without_us(new) == text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("models: {a: {cmd: llama-server}}\n", "one below the other"),
        ("models:\n  a: {cmd: llama-server}\n  a-srhpm: {cmd: x}\n", "already"),
        ("models:\n  a: {cmd: '\"/x\n\n    /llama-server\"'}\n", "one line"),
        ("- a\n", "no mapping"),
        ("models: [\n", "while parsing"),
        (BOMB + "models:\n  m: {cmd: llama-server}\n", "too much"),
        ("models:\n  m: {cmd: llama-server}\n  n: " + "[" * 90 + "]" * 90, "deep"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_to(tmp_path: Path, tools: Tools, text: str, part: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    (found,) = HOST.find(tmp_path)
    with pytest.raises(UserError, match=part):
        HOST.steps(found, tools, "select")


def test_no_server_in_it(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("models:\n  a: {cmd: vllm serve}\n")
    (found,) = HOST.find(tmp_path)
    assert (found.installable, "no model" in found.how) == (False, True)


def test_models(file: Path, install: Callable) -> None:
    install(HOST, found_in(file), "select")
    models = {m.name: m for m in HOST.models(found_in(file))}
    assert sorted(models) == ["plain", "plain-srhpm", "qwen", "qwen-srhpm"]
    assert models["qwen"].path.name == models["qwen-srhpm"].path.name == "qwen.gguf"
    assert (models["qwen"].ctx, models["qwen"].twin) == (8192, False)
    assert models["qwen-srhpm"].twin
    assert models["plain"].unfit is not None


def test_twins_are_picked() -> None:
    request = HostRequest(model=Path("/m/a.gguf"))
    for mode, picked in (("select", True), ("all", False)):
        told = HOST.translate(HostCall("llama-swap", (), {}, {}, mode), request)  # type: ignore[arg-type]
        assert isinstance(told, Translated)
        assert told.picked is picked


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["llama-swap", "-config", "a.yaml"], "a.yaml"),
        (["llama-swap", "--config=b.yaml", "-listen", ":1"], "b.yaml"),
        (["llama-swap", "-config"], None),
        (["llama-swap"], None),
    ],
)
def test_the_configuration_of_a_running_one(arguments: list[str], value: str | None) -> None:
    assert places.config_of(arguments) == value


@pytest.mark.parametrize("mode", ["all", "select"])
def test_its_own_server(
    tmp_path: Path, install: Callable, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a build that matches it, also while ours stands for it."""
    server = tmp_path / f"llama-server{EXE}"
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "config.yaml"
    path.write_text("models:\n  a: {cmd: llama-server --port 1}\n")
    assert HOST.own_server(found_in(path)) == server
    install(HOST, found_in(path), mode)
    assert HOST.own_server(found_in(path)) == server


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a script")
@pytest.mark.parametrize(("says", "version"), [("161", "161"), ("0", None), ("local", None)])
def test_its_version(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, version: str | None
) -> None:
    program = tmp_path / "bin" / "llama-swap"
    program.parent.mkdir(exist_ok=True)
    # Go's flags have one dash
    program.write_text(f'#!/bin/sh\ntest "$1" = -version && echo "version: {says} (abcd1234)"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    assert [found.version for found in HOST.find(file)] == [version]
