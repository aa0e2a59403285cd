"""The kernels for 64-bit ARM: compiled by a cross compiler and run in an emulator, which shows that
they compute the right bits and nothing of their speed.

A machine without these two programs skips all this; where ``SRHPM_TEST_ARM`` is set (as .ci/run
does, after installing them) that is a failure. An ARM machine runs the same in test_programs.py.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from srhpm_plugin.native import source, toolchain
from srhpm_plugin.native.hooks import apply_hooks, load_hooks
from srhpm_plugin.native.recipe import native_dir

TAG = 11434
PREFIX = "aarch64-linux-gnu-"
OPTIONS = {
    "CMAKE_SYSTEM_NAME": "Linux",
    "CMAKE_SYSTEM_PROCESSOR": "aarch64",
    "CMAKE_C_COMPILER": PREFIX + "gcc",
    "CMAKE_CXX_COMPILER": PREFIX + "g++",
    "CMAKE_EXE_LINKER_FLAGS": "-static",  # the emulator finds no libraries of the other system
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "OFF",
    "GGML_NATIVE": "OFF",
    "GGML_OPENMP": "OFF",
}


def needed(*names: str) -> str:
    """The first of these programs that there is."""
    if platform.machine().lower() in ("aarch64", "arm64"):
        pytest.skip("this is such a machine")
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        message = f"no {names[0]}: install g++-aarch64-linux-gnu and qemu-user"
        if os.environ.get("SRHPM_TEST_ARM"):
            pytest.fail(message)
        pytest.skip(message)
    return found


class Build:
    """A configured build for ARM."""

    def __init__(self, folder: Path, tree: Path) -> None:
        tools = toolchain.find(print)
        self.folder = folder
        self.ninja = str(tools.ninja)
        self.env = dict(os.environ)
        options = {**OPTIONS, "CMAKE_MAKE_PROGRAM": self.ninja, "SRHPM_LLAMA_DIR": tree.as_posix()}
        if tools.ccache:
            # the tree lies in another folder each time
            self.env |= {"CCACHE_BASEDIR": str(folder.parent), "CCACHE_NOHASHDIR": "1"}
            for language in ("C", "CXX"):
                options[f"CMAKE_{language}_COMPILER_LAUNCHER"] = str(tools.ccache)
        argv = [str(tools.cmake), "-G", "Ninja", "-S", str(native_dir()), "-B", str(folder)]
        self._run(*argv, *(f"-D{key}={value}" for key, value in options.items()))

    def _run(self, *argv: str) -> str:
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout

    def make(self, *targets: str) -> None:
        """Builds these, or fails with the compiler's last words."""
        self._run(self.ninja, "-C", str(self.folder), *targets)

    def objects(self, pattern: str) -> list[str]:
        """Targets that match."""
        listed = self._run(self.ninja, "-C", str(self.folder), "-t", "targets", "all")
        names = (line.rpartition(": ")[0] for line in listed.splitlines())
        return [name for name in names if re.search(pattern, name)]


@pytest.fixture(scope="module")
def emulator() -> str:
    return needed("qemu-aarch64-static", "qemu-aarch64")


@pytest.fixture(scope="module")
def arm_build(source_archives: dict[int, Path], tmp_path_factory: pytest.TempPathFactory) -> Build:
    needed(OPTIONS["CMAKE_CXX_COMPILER"])
    work = tmp_path_factory.mktemp("arm")
    source.extract(source_archives[TAG], work / "llama.cpp")
    apply_hooks(work / "llama.cpp", load_hooks(native_dir() / "hooks.toml"), TAG)
    return Build(work / "build", work / "llama.cpp")


@pytest.fixture(scope="module")
def test_program(arm_build: Build) -> Path:
    arm_build.make("test-kernels")
    return arm_build.folder / "bin" / "test-kernels"


def run(emulator: str, cpu: str, program: Path, seed: int, **env: str) -> str:
    done = subprocess.run(
        [emulator, "-cpu", cpu, str(program), str(seed)],
        env={**os.environ, "SRHPM_ISA": "", **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kernels(emulator: str, test_program: Path, seed: int) -> None:
    """Both forms: packing without loss, products right and the same in any batch, attention."""
    assert run(emulator, "max", test_program, seed).startswith("neon portable (chosen: neon)")


def test_kernels_for_floats(emulator: str, arm_build: Build) -> None:
    arm_build.make("test-floats")
    program = arm_build.folder / "bin" / "test-floats"
    assert run(emulator, "max", program, 1) == "neon portable for floats: all right\n"


def test_without_dot_products(emulator: str, test_program: Path) -> None:
    """A processor that lacks them runs no such code, which would be an illegal instruction."""
    said = run(emulator, "cortex-a53", test_program, 4)
    assert said.startswith("portable (chosen: none)")


def test_named(emulator: str, test_program: Path) -> None:
    said = run(emulator, "max", test_program, 5, SRHPM_ISA="portable")
    assert said.startswith("neon portable (chosen: portable)")


def test_the_rest_compiles(emulator: str, arm_build: Build) -> None:
    """What of ours goes into the CPU backend."""
    objects = arm_build.objects(r"/ggml-cpu\.dir/.*/srhpm-[a-z-]+\.cpp\.o$")
    sources = (native_dir() / "overlay" / "ggml-cpu").glob("*.cpp")
    assert len(objects) == len(list(sources))
    arm_build.make(*objects)
