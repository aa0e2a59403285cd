"""Clients set by URL: what is written, and that uninstalling takes only that out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from srhpm_plugin.cli import cli
from srhpm_plugin.errors import UserError
from srhpm_plugin.host import Installation, Tools
from srhpm_plugin.install.operations import WriteFile
from srhpm_plugin.integrations.clients import CLIENTS, FileClient, address, jsonc, vscode, zed
from srhpm_plugin.integrations.clients import continue_ as yaml

URL = "http://127.0.0.1:11436"
FILES = [c for c in CLIENTS if isinstance(c, FileClient)]

ZED = [
    "",
    "{}",
    "{ }",
    "{\n}\n",
    "{\n  // nothing yet\n}\n",
    '// Zed settings\n{\n  "theme": "One", // the best\n  "vim_mode": true,\n}\n',
    '{"a": 1}',
    '{ "a": 1, "b": [1, 2, /* three */ 3] }',
    '{\r\n\t"a": "// no comment",\r\n\t"b": {}\r\n}\r\n',
    '{\n  "language_models": {}\n}',
    '{\n  "language_models": {\n    "openai": {"api_url": "x"} // theirs\n  }\n}',
    '{\n  "language_models": {\n    "ollama": { "low_speed_timeout_in_seconds": 3 },\n  }\n}',
    '{\n  "language_models": { "ollama": { "api_url": "http://box:11434" } }\n}',
    '\ufeff{"language_models": {"ollama": {}}, /* end */}',
]


@pytest.mark.parametrize("text", ZED)
def test_zed_gets_the_address_and_keeps_all_else(text: str) -> None:
    new = zed.edited(text, URL)
    before = jsonc.parse(text).value if text else {}
    after = jsonc.parse(new).value
    assert after["language_models"]["ollama"].pop("api_url") == URL
    before.get("language_models", {}).get("ollama", {}).pop("api_url", None)
    for value in (before, after):  # empty ones may have come with the address
        models = value.setdefault("language_models", {})
        models.setdefault("ollama", {})
    assert after == before
    for comment in ("// the best", "/* three */", "// theirs", "// nothing yet", "/* end */"):
        assert (comment in new) == (comment in text)
    assert zed.is_set(new, URL)
    assert not zed.is_set(text, URL)


@pytest.mark.parametrize("text", [t for t in ZED if t not in ("", "{}", "{ }", '{"a": 1}')])
def test_zed_without_us_says_what_it_said(text: str) -> None:
    new = zed.edited(text, URL)
    # the user changes something else meanwhile
    new = new.replace('"vim_mode": true', '"vim_mode": false')
    back = zed.without_us(new)
    assert "srhpm" not in back
    assert URL not in back
    assert jsonc.parse(back).value == jsonc.parse(text.replace("true", "false")).value


CODE = [
    "",
    "[]",
    "[\n]\n",
    '[{"name": "Ollama", "vendor": "ollama", "url": "http://localhost:11434"}]',
    '[\n\t{\n\t\t"name": "GPT",\n\t\t"vendor": "openai",\n\t\t"apiKey": "${input:k}"\n\t}\n]\n',
]


@pytest.mark.parametrize("text", CODE)
def test_vs_code_gets_an_entry_which_goes_again(text: str) -> None:
    new = vscode.edited(text, URL)
    entries = json.loads(new)  # no comments: VS Code's dialogues write this file too
    assert entries[0] == {"name": "SR-HPM", "vendor": "ollama", "url": URL}
    assert entries[1:] == json.loads(text or "[]")
    assert vscode.is_set(new, URL)
    # as VS Code would write it after somebody has added a model
    rewritten = json.dumps([*entries[1:], {"name": "new"}, entries[0]], indent=1)
    for written in (new, rewritten):
        back = jsonc.parse(vscode.without_us(written)).value
        assert back == [e for e in json.loads(written) if e["name"] != "SR-HPM"]
    with pytest.raises(ValueError, match="already"):
        vscode.edited(new, URL)


CONTINUE = [
    "",
    "name: Mine\nversion: 1.0.0\nschema: v1\n",
    "name: Mine\nversion: 1.0.0\nschema: v1",
    "name: Mine # my own\nmodels:\n  - name: GPT # dear\n    provider: openai\n    model: gpt\n"
    "rules: [a, b]\n",
    "models:\n- name: A\n  provider: x\n\n# the end\n",
    "models:\r\n  - name: A\r\n    provider: x\r\ncontext:\r\n  - provider: code\r\n",
]


@pytest.mark.parametrize("text", CONTINUE)
def test_continue_gets_a_model_which_goes_again(text: str) -> None:
    new = yaml.edited(text, URL)
    assert yaml.is_set(new, URL)
    assert "AUTODETECT" in new
    for comment in ("# my own", "# dear", "# the end"):
        assert (comment in new) == (comment in text)
    if text:
        back = yaml.without_us(new + "\nadded: later\n")
        assert back.rstrip() == text.rstrip() + "\n\nadded: later" or "added: later" in back
        assert yaml.without_us(new).rstrip() == text.rstrip()
    assert ("\r\n" in new) == ("\r\n" in text)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (zed.edited, "[]"),
        (zed.edited, '{"a": 1'),
        (zed.edited, '{"a": 1} x'),
        (zed.edited, '{"language_models": 3}'),
        (zed.edited, '{"language_models": {"ollama": []}}'),
        (zed.edited, '{"a": 1, "a": 2}'),
        (zed.edited, "[" * 5000),
        (vscode.edited, "{}"),
        (vscode.edited, "no"),
        (yaml.edited, "- a\n"),
        (yaml.edited, "models: {a: 1}\n"),
        (yaml.edited, "models: [{name: a}]\n"),
        (yaml.edited, "a: [\n"),
        (yaml.edited, "models:\n  - name: a\n---\nb: 1\n"),
    ],
)
def test_what_cannot_be_edited_is_refused(edit: object, text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        edit(text, URL)  # type: ignore[operator]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


@given(_JSON, st.sampled_from([None, 0, 2, "\t"]))
def test_the_reader_agrees_with_json(value: object, indent: int | str | None) -> None:
    text = json.dumps(value, indent=indent)
    node = jsonc.parse(f" // a\n{text} /* b */\n")
    assert node.value == value
    assert f" // a\n{text} /* b */\n"[node.start : node.end] == text


@given(st.dictionaries(st.text(max_size=5), _JSON, max_size=5), st.sampled_from([None, 1, 4]))
def test_any_settings_survive(value: dict[str, object], indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    try:
        new = zed.edited(text, URL)
    except ValueError:
        assert "language_models" in value
        return
    after = jsonc.parse(new).value
    assert after["language_models"]["ollama"]["api_url"] == URL
    rest = {k: v for k, v in after.items() if k != "language_models"}
    assert rest == {k: v for k, v in value.items() if k != "language_models"}
    assert jsonc.parse(zed.without_us(new)).value == value


def _tools(state: Path) -> Tools:
    return Tools(Path("d"), Path("p"), None, Path("s"), state)


@pytest.fixture(autouse=True)
def _address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:11436")


@pytest.mark.parametrize("client", FILES, ids=lambda c: c.name)
def test_a_client_with_a_file(client: FileClient, tmp_path: Path) -> None:
    assert list(client.find(tmp_path / "nowhere")) == []
    (found,) = client.find(tmp_path)
    assert isinstance(found, Installation)
    steps = client.steps(found, _tools(tmp_path), "all")
    (write,) = steps.operations
    assert isinstance(write, WriteFile)
    assert (write.path, write.expected) == (tmp_path / client.settings.FILE, None)
    assert not client.registered(found)
    write.path.write_bytes(write.content)
    assert client.registered(found)
    with pytest.raises(UserError, match="already"):
        client.steps(found, _tools(tmp_path), "all")
    assert any("type srhpm-plugin serve" in note for note in steps.notes)
    back = client.without_us(write.path, write.content)
    assert back is not None
    assert URL.encode() not in back
    write.path.write_bytes(b"\xff")
    with pytest.raises(UserError, match="by hand"):
        client.steps(found, _tools(tmp_path), "all")


@pytest.mark.parametrize("client", CLIENTS, ids=lambda c: c.name)
def test_every_client_says_what_to_do_by_hand(
    client: FileClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HOME", "APPDATA", "XDG_CONFIG_HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    result = CliRunner().invoke(cli, ["install", "--host", client.name])
    assert result.exit_code == 0, result.output
    assert URL in result.output
    assert "type srhpm-plugin serve" in result.output
    said = json.loads(CliRunner().invoke(cli, ["install", "--host", client.name, "--json"]).output)
    assert said["host"] == client.name
    assert URL in said["by_hand"][0]


def test_what_answers_there_is_looked_at() -> None:
    import http.server
    import threading

    class Handler(http.server.BaseHTTPRequestHandler):
        name = "srhpm-plugin"

        def version_string(self) -> str:
            return self.name

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        there = f"http://127.0.0.1:{server.server_port}"
        assert address.trouble(there) is None
        Handler.name = "other"
        assert "another program" in (address.trouble(there) or "")
        server.shutdown()


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000"),
        ("box:1", "http://box:1"),
    ],
)
def test_the_address_is_that_of_serve(host: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert address.url() == url
