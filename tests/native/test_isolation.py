"""Hosts point LD_LIBRARY_PATH and GGML_BACKEND_PATH at their own ggml: it must stay out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Loading it leaves a mark; as a backend it would also be taken for one.
POISON = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void mark(void) {
    FILE * f = fopen(getenv("POISON_MARK"), "w");
    if (f) { fputs("loaded", f); fclose(f); }
}
void * ggml_backend_init(void) { return 0; }
int ggml_backend_score(void) { return 1 << 20; }
"""
NAMES = ["libggml.so", "libggml.so.0", "libggml-base.so", "libggml-base.so.0", "libggml-cpu.so"]
NAMES += ["libggml-cpu-zen4.so", "libggml-blas.so", "libllama.so", "libllama.so.0", "libmtmd.so.0"]


@pytest.fixture(scope="session")
def poison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of libraries with a host's names, none of which may be loaded."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "poison.c").write_text(POISON)
    first = folder / NAMES[0]
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "the server was built, so there is a compiler"
    argv = [compiler, "-shared", "-fPIC", "-o", str(first), str(folder / "poison.c")]
    subprocess.run(argv, check=True)
    for name in NAMES[1:]:
        shutil.copy(first, folder / name)
    return folder


def environment(poison: Path, mark: Path) -> dict[str, str]:
    return {
        **os.environ,
        "POISON_MARK": str(mark),
        "LD_LIBRARY_PATH": str(poison),
        "DYLD_LIBRARY_PATH": str(poison),
        "GGML_BACKEND_PATH": str(poison / "libggml-cpu.so"),
    }


pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="poisoned libraries are built for ELF and Mach-O loaders"
)


def test_the_poison_works(poison: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"import ctypes; ctypes.CDLL({str(poison / 'libggml-cpu.so')!r})"
    env = environment(poison, mark)
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    assert mark.exists()


@pytest.mark.parametrize(
    "argv", [["llama-server", "--list-devices"], ["llama-bench", "--list-devices"]]
)
def test_a_hosts_libraries_stay_out(
    argv: list[str], poison: Path, server_dir: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    done = subprocess.run(
        [str(server_dir / argv[0]), *argv[1:]],
        env=environment(poison, mark),
        cwd=poison,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert not mark.exists(), "a library of the host's was loaded"
    assert "srhpm: GGML_BACKEND_PATH ignored" in done.stderr
    # hosts parse the log: nothing of ours may look like a failure
    ours = [line for line in done.stderr.splitlines() if line.startswith("srhpm:")]
    for word in ("error:", "failed to allocate", "out of memory"):
        assert not any(word in line for line in ours)
