"""A host's GPU library in a server of ours (``SRHPM_BACKENDS``): a stand-in GPU, built as a host
would build it: from our server's tag, and from another. ggml alone stands for the server, as a
whole one takes long to compile as shared libraries; the loader is the hooked one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from srhpm_plugin.native import source, toolchain
from srhpm_plugin.native.hooks import apply_hooks, load_hooks
from srhpm_plugin.native.recipe import native_dir

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the stand-in is built with the options of an ELF linker"
)

OURS, OTHER = 11434, 10488
LOADED = "STANDIN: loaded"
OLD = "API version 2"


class Tags(NamedTuple):
    """Folders of built libraries."""

    ours: Path
    other: Path


@pytest.fixture(scope="session")
def built(source_archives: dict[int, Path], tmp_path_factory: pytest.TempPathFactory) -> Tags:
    root = tmp_path_factory.mktemp("host-backend")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SRHPM_HOME", str(tmp_path_factory.mktemp("tools")))
        tools = toolchain.find(print)
    ours = ["stand-in", "lacking", "no-backend", "use-backends"]
    return Tags(
        _build(root / "ours", source_archives[OURS], OURS, tools, ours),
        _build(root / "other", source_archives[OTHER], OTHER, tools, ["stand-in"]),
    )


def _build(
    folder: Path, archive: Path, tag: int, tools: toolchain.Toolchain, targets: list[str]
) -> Path:
    tree = folder / "llama.cpp"
    folder.mkdir()
    source.extract(archive, tree)
    hooks = load_hooks(native_dir() / "hooks.toml")
    loader = [h for h in hooks if h.file == "ggml/src/ggml-backend-reg.cpp"]
    assert all(hook.applied for hook in apply_hooks(tree, loader, tag) if "host" in hook.name)
    options = {
        "CMAKE_MAKE_PROGRAM": str(tools.ninja),
        "SRHPM_LLAMA_DIR": str(tree),
        "SRHPM_TAG": f"b{tag}",
    }
    env = dict(os.environ)
    if tools.ccache:
        options |= {f"CMAKE_{x}_COMPILER_LAUNCHER": str(tools.ccache) for x in ("C", "CXX")}
        env |= {"CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1"}
    build = folder / "build"
    project = native_dir() / "tests" / "host-backend"
    argv = [str(tools.cmake), "-G", "Ninja", "-S", str(project), "-B", str(build)]
    for step in (
        [*argv, *(f"-D{name}={value}" for name, value in options.items())],
        [str(tools.cmake), "--build", str(build), "--target", *targets],
    ):
        done = subprocess.run(step, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return build / "bin"


class Ran(NamedTuple):
    devices: list[str]
    computed: str  # the line that says where, and the sum
    log: str

    @property
    def ours(self) -> list[str]:
        """The lines that hosts see of us."""
        return [line for line in self.log.splitlines() if line.startswith("srhpm:")]


Use = Callable[..., Ran]


@pytest.fixture
def use(built: Tags) -> Use:
    """``use(tag, library, ...)``: our program, told to borrow these."""

    def _use(tag: str = "", *libraries: Path | str, env: dict[str, str] | None = None) -> Ran:
        told = {"SRHPM_BACKENDS": ":".join([tag, *map(str, libraries)])} if tag else {}
        done = subprocess.run(
            [str(built.ours / "use-backends")],
            env={**os.environ, **told, **(env or {})},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        devices = [line.removeprefix("device ") for line in lines if line.startswith("device ")]
        return Ran(devices, lines[-1], done.stderr)

    return _use


def test_a_library_of_the_same_tag_is_used_where_it_lies(
    use: Use, built: Tags, tmp_path: Path
) -> None:
    """In another folder, beside a ggml of its own that must stay out."""
    library = tmp_path / "libggml-cuda.so"
    shutil.copy(built.ours / "libstand-in.so", library)
    for name in ("libggml-base.so.0", "libggml.so.0"):
        (tmp_path / name).write_bytes(b"no library")
    run = use("b11434", library, env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert run.devices == ["CPU", "STANDIN0"]
    assert run.ours == [f"srhpm: the host's STANDIN is used, from {library}"]
    alone = use()
    assert alone.devices == ["CPU"]
    assert not alone.ours
    assert run.computed.replace("STANDIN0", "CPU") == alone.computed
    assert run.computed.startswith("computed on STANDIN0: ")


def test_another_tag_is_not_even_loaded(use: Use, built: Tags) -> None:
    library = built.other / "libstand-in.so"
    run = use("b10488", library)
    assert run.devices == ["CPU"]
    assert run.ours == [
        f"srhpm: not loading {library}: it is of llama.cpp b10488, this server of b11434"
    ]
    assert LOADED not in run.log
    assert run.computed == use().computed


def test_another_api_version_shows_in_the_library(use: Use, built: Tags) -> None:
    """Whatever tag is claimed for it."""
    library = built.other / "libstand-in.so"
    run = use("b11434", library)
    assert f"{LOADED}, {OLD}" in run.log
    assert run.devices == ["CPU"]
    assert run.ours == [f"srhpm: not loading {library}: its API version is 2, ours is 3"]
    assert run.computed == use().computed


def test_a_symbol_that_we_have_not(use: Use, built: Tags) -> None:
    library = built.ours / "liblacking.so"
    run = use("b11434", library)
    assert LOADED not in run.log
    assert run.devices == ["CPU"]
    assert len(run.ours) == 1
    assert "undefined symbol: ggml_of_a_later_tag" in run.ours[0]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("libno-backend.so", "it is no backend"),
        ("libnot-there.so", "it is no file"),
        ("text.so", "invalid ELF header|file too short"),
    ],
)
def test_what_is_no_backend(use: Use, built: Tags, name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library" * 100)
    library = tmp_path / name if name == "text.so" else built.ours / name
    run = use("b11434", library)
    assert run.devices == ["CPU"]
    assert len(run.ours) == 1
    assert any(part in run.ours[0] for part in why.split("|"))


@pytest.mark.parametrize("told", ["b11434", "b11434:", "b11434::", ":", "libstand-in.so"])
def test_nonsense_does_no_harm(use: Use, told: str) -> None:
    assert use(env={"SRHPM_BACKENDS": told}).devices == ["CPU"]


def test_several(use: Use, built: Tags) -> None:
    run = use("b11434", built.ours / "libno-backend.so", built.ours / "libstand-in.so")
    assert run.devices == ["CPU", "STANDIN0"]
    assert len(run.ours) == 2


def test_a_server_of_one_file_loads_none(built: Tags, server_dir: Path) -> None:
    """The default build: a library would bring a second ggml along."""
    library = built.ours / "libstand-in.so"
    done = subprocess.run(
        [str(server_dir / "llama-server"), "--list-devices"],
        env={**os.environ, "SRHPM_BACKENDS": f"b11434:{library}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert "STANDIN" not in done.stdout + done.stderr
    ours = [line for line in done.stderr.splitlines() if line.startswith("srhpm:")]
    assert len(ours) == 1
    assert f"srhpm: not loading {library}: this server is one file" in ours[0]
    assert "native build --portable" in ours[0]
