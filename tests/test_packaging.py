"""An installed package, not a checkout: import names, native sources, the wheel of the server."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from srhpm_plugin.native.locate import INFO_NAME
from srhpm_plugin.native.wheel import files_to_pack, make_wheel, platform_tag

ROOT = Path(__file__).parent.parent


def pip_install(what: Path, target: Path) -> None:
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*argv, "--target", str(target), str(what)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``pip install . --target FOLDER``, without the dependencies that are here already; an earlier
    build has left a file that the sources no longer have."""
    folder = tmp_path_factory.mktemp("site")
    left = ROOT / "build" / "lib" / "srhpm_plugin" / "removed_long_ago.py"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.touch()
    argv = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        folder,
        ROOT,
    ]
    subprocess.run([str(a) for a in argv], check=True, capture_output=True)
    return folder


def python(folder: Path, code: str, **env: str) -> str:
    """Runs code that sees the installed package first and never the checkout."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {code}"],
        env={**os.environ, **env},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_names(installed: Path) -> None:
    tops = {p.name for p in installed.iterdir() if not p.name.endswith(".dist-info")}
    assert tops <= {"srhpm_plugin", "bin", "__pycache__"}
    code = "import srhpm_plugin.backends, srhpm_plugin.integrations as i; print(i.__file__)"
    assert python(installed, code).startswith(str(installed))
    assert (installed / "srhpm_plugin" / "py.typed").exists()


def test_only_what_the_sources_have(installed: Path) -> None:
    def modules(folder: Path) -> set[str]:
        return {p.relative_to(folder).as_posix() for p in folder.rglob("*.py")}

    there = modules(installed / "srhpm_plugin")
    assert "removed_long_ago.py" not in there
    wanted = modules(ROOT / "srhpm_plugin")
    for name in ("backends", "integrations"):
        wanted |= {f"{name}/{path}" for path in modules(ROOT / name)}
    assert {p for p in there if not p.startswith("_native/")} == wanted


def test_native_sources_come_along(installed: Path) -> None:
    code = (
        "from srhpm_plugin.native import recipe, hooks; d = recipe.native_dir(); print(d); "
        "print(*[p.as_posix() for p in recipe.our_files()]); "
        "print(len(hooks.load_hooks(d / 'hooks.toml')))"
    )
    folder, files, count = python(installed, code).splitlines()
    assert folder == str(installed / "srhpm_plugin" / "_native")
    native = ROOT / "native"
    wanted = {
        p.relative_to(native).as_posix()
        for p in native.rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert set(files.split()) == wanted
    assert int(count) > 20


def test_server_wheel_is_found_when_installed(
    server_dir: Path, installed: Path, tmp_path: Path
) -> None:
    wheel = make_wheel(server_dir.parent, tmp_path / "dist")
    assert wheel.name.endswith(f"-py3-none-{platform_tag()}.whl")
    site = tmp_path / "site"
    pip_install(wheel, site)
    code = (
        f"sys.path.insert(1, {str(site)!r}); "
        "from srhpm_plugin.native import info; d = info.describe(); "
        "print(d['server_path']); print(d['llama_cpp_tag']); print(len(d['isa']))"
    )
    env = {"SRHPM_HOME": str(tmp_path / "home"), "SRHPM_SERVER": ""}
    path, tag, isa = python(installed, code, **env).splitlines()
    assert Path(path).is_relative_to(site / "srhpm_native")
    assert tag == "b11434"
    assert int(isa) > 0


def test_wheel_packs_each_library_once(tmp_path: Path) -> None:
    """Wheels hold no links: a library goes in under the name that programs ask for."""
    folder = tmp_path / "build"
    (folder / "bin").mkdir(parents=True)
    for name in ("llama-server", "test-exact", "libggml-cpu-zen4.so", "libllama.so.0.6.0"):
        (folder / "bin" / name).write_bytes(name.encode())
    (folder / "bin" / "libllama.so.0").symlink_to("libllama.so.0.6.0")
    (folder / "bin" / "libllama.so").symlink_to("libllama.so.0")
    (folder / INFO_NAME).write_text("{}")
    packed = files_to_pack(folder)
    assert set(packed) == {"llama-server", "libggml-cpu-zen4.so", "libllama.so.0"}
    with zipfile.ZipFile(make_wheel(folder, tmp_path / "dist")) as wheel:
        assert wheel.read("srhpm_native/build/bin/libllama.so.0") == b"libllama.so.0.6.0"
