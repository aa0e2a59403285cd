"""Whether our server may load the GPU libraries of a host."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.dropin.borrow import NAMED, VARIABLE, NotLent, lent, passed_on
from srhpm_plugin.native import locate
from srhpm_plugin.native.locate import INFO_NAME, HostBuild, builds_dir

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="servers are played by scripts")

SHALLOW = "version: 0.1.2-dev (build 1, commit 9d77fa172)"
UNKNOWN = "version: 0.2.0-dev (build 1, commit 70adb1b)"


class Tree:
    """A host's folder as Ollama lays it out, and a build of ours."""

    def __init__(self, root: Path, script: Callable[..., Path]) -> None:
        self.lib = root / "ollama"
        self.original = self.lib / "llama-server.srhpm-original"
        self.library = self.lib / "cuda_v13" / "libggml-cuda.so"
        self.library.parent.mkdir(parents=True)
        self.library.touch()
        (self.lib / "libggml-base.so").touch()
        self.script = script
        self.says(SHALLOW)
        self.build = builds_dir() / "b10488-portable"
        self.server = self.build / "bin" / "llama-server"
        self.server.parent.mkdir(parents=True)
        self.server.touch()
        self.is_built()

    def says(self, line: str) -> None:
        self.script(self.original, f"#!/bin/sh\necho {line!r}\n")

    def is_built(self, tag: str = "b10488", portable: bool = True) -> None:
        info = {"llama_cpp_tag": tag, "portable": portable}
        (self.build / INFO_NAME).write_text(json.dumps(info))

    def lent(self, **env: Path | str) -> dict[str, str | None] | None:
        told = {NAMED: str(self.library), **{k: str(v) for k, v in env.items()}}
        return lent("ollama", self.original, told, self.server)


@pytest.fixture
def tree(tmp_path: Path, script: Callable[..., Path]) -> Iterator[Tree]:
    yield Tree(tmp_path.resolve(), script)
    locate.serve(None)


def test_the_library_that_the_host_names(tree: Tree) -> None:
    assert tree.lent() == {VARIABLE: f"b10488:{tree.library}", NAMED: None}


def test_those_beside_its_server(tree: Tree) -> None:
    """As upstream's own servers have them; what is no GPU's is not asked for."""
    vulkan, cuda = tree.lib / "libggml-vulkan.so", tree.lib / "libggml-cuda.so"
    for path in (vulkan, cuda, tree.lib / "libggml-cuda.so.txt", tree.lib / "libggml-cpu-zen4.so"):
        path.touch()
    found = lent("ollama", tree.original, {}, tree.server)
    assert found == {VARIABLE: f"b10488:{cuda}{os.pathsep}{vulkan}", NAMED: None}


def test_nothing_to_lend(tree: Tree) -> None:
    assert lent("ollama", tree.original, {}, tree.server) is None
    assert tree.lent(GGML_BACKEND_PATH=tree.lib / "libggml-base.so") is None
    assert tree.lent(GGML_BACKEND_PATH=tree.lib / "none" / "libggml-cuda.so") is None


def test_another_tag(tree: Tree) -> None:
    tree.is_built("b11434")
    with pytest.raises(NotLent, match=r"its llama.cpp is b10488, ours is b11434"):
        tree.lent()
    tree.says("version: 0.6.0-dev (build 11401, commit 012345678)")
    with pytest.raises(NotLent, match=r"its llama.cpp is b11401, ours is b11434"):
        tree.lent()


def test_a_tag_that_nobody_knows(tree: Tree) -> None:
    tree.says(UNKNOWN)
    with pytest.raises(NotLent, match=r"its llama.cpp is 0\.2\.0-dev \(build 1, commit 70adb1b\)"):
        tree.lent()
    tree.says("no version here")
    with pytest.raises(NotLent, match="does not say its llama"):
        tree.lent()


def test_a_build_made_for_this_very_server(tree: Tree) -> None:
    """Whatever it calls itself; after an upgrade of the host it is another."""
    tree.says(UNKNOWN)
    locate.set_host_build("ollama", HostBuild(tree.build, UNKNOWN))
    assert tree.lent() == {VARIABLE: f"b10488:{tree.library}", NAMED: None}
    tree.says(UNKNOWN.replace("70adb1b", "70adb1c"))
    with pytest.raises(NotLent):
        tree.lent()
    # nor may another build of ours
    tree.says(UNKNOWN)
    other = builds_dir() / "b10499-portable"
    tree.build.rename(other)
    tree.build.mkdir()
    (tree.build / INFO_NAME).write_text("{}")
    with pytest.raises(NotLent):
        lent("ollama", tree.original, {NAMED: str(tree.library)}, other / "bin" / "llama-server")


def test_a_build_of_one_file(tree: Tree) -> None:
    tree.is_built(portable=False)
    with pytest.raises(NotLent, match="loads no libraries"):
        tree.lent()


@pytest.mark.parametrize("link", [False, True])
def test_a_library_of_somebody_else(tree: Tree, tmp_path: Path, link: bool) -> None:
    """Only the host's own is known to be of its server's tag."""
    foreign = tmp_path / "elsewhere" / "libggml-cuda.so"
    foreign.parent.mkdir()
    foreign.touch()
    named = foreign
    if link:
        named = tree.lib / "libggml-cuda.so"
        named.symlink_to(foreign)
    with pytest.raises(NotLent, match="lies outside its folder"):
        tree.lent(GGML_BACKEND_PATH=named)


def test_what_is_passed_on_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAMED, "before")
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    before = dict(os.environ)
    changes: dict[str, str | None] = {VARIABLE: "b1:/x", NAMED: None}
    with passed_on(changes, {"LD_LIBRARY_PATH": "/theirs"}):
        assert os.environ[VARIABLE] == "b1:/x"
        assert os.environ["LD_LIBRARY_PATH"] == "/theirs"
        assert NAMED not in os.environ
    assert dict(os.environ) == before


# ---- in a decision ----------------------------------------------------------------------------

GPU = "Available devices:\\n  CUDA0: NVIDIA Card (24000 MiB, 23000 MiB free)"

# Ours: becomes the real patched server, but lists the GPU where it was lent the library.
OURS = """#!{python}
import os, sys
if sys.argv[1:] == ["--list-devices"] and os.environ.get("SRHPM_BACKENDS"):
    print("{listed}")
    sys.exit({code})
os.execv({real!r}, [{real!r}, *sys.argv[1:]])
"""


@pytest.fixture
def with_gpu(
    place: Any, script: Callable[..., Path], real_server: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, str]]:
    """``with_gpu(listed, code)``: the host has a GPU and a library; our server, of its tag, lists
    that when it is lent the library. Returns the host's environment."""
    library = place.original.parent / "cuda_v13" / "libggml-cuda.so"
    library.parent.mkdir(parents=True)
    library.touch()
    version = (
        'if "--version" in sys.argv: print("version: 0.6.0-dev (build 11434, commit 0123456)")'
    )
    script(place.original, f'#!{sys.executable}\nimport sys\n{version}\nelse: print("{GPU}")\n')

    def make(listed: str = GPU, code: int = 0) -> dict[str, str]:
        bin_ = builds_dir() / "b11434-portable" / "bin"
        text = OURS.format(python=sys.executable, real=str(real_server), listed=listed, code=code)
        server = script(bin_ / "llama-server", text)
        info = {**locate.build_info(real_server.parent.parent), "portable": True}
        (bin_.parent / INFO_NAME).write_text(json.dumps(info))
        return {NAMED: str(library), "SRHPM_SERVER": str(server)}

    return make


def test_our_server_is_lent_the_library(
    with_gpu: Callable[..., dict[str, str]],
    decided: Callable[..., Any],
    smollm2: Path,
    tmp_path: Path,
) -> None:
    """The plan counts on the GPU, and the server is told of the library."""
    drafter = tmp_path / "drafter.gguf"
    shutil.copy(smollm2, drafter)
    env = with_gpu()
    made = decided("-m", smollm2, "-md", drafter, env=env)
    assert made.kind != "stock", made.reason
    assert str(made.program) == env["SRHPM_SERVER"]
    assert made.env[VARIABLE] == f"b11434:{env[NAMED]}"
    assert made.env[NAMED] is None
    assert made.value("--gpu-layers") not in (None, "0")


@pytest.mark.parametrize(("listed", "code"), [("Available devices:", 0), (GPU, 139)])
def test_it_finds_no_gpu_with_it(
    with_gpu: Callable[..., dict[str, str]],
    decided: Callable[..., Any],
    smollm2: Path,
    listed: str,
    code: int,
) -> None:
    """Or dies of it."""
    made = decided("-m", smollm2, env=with_gpu(listed, code))
    assert made.kind == "stock"
    assert "ours finds no GPU with its libraries: type srhpm-plugin native build" in made.reason
    assert VARIABLE not in made.env
