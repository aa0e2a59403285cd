"""The native tests as programs, and what the built server says of itself."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from srhpm_plugin.cli import cli
from srhpm_plugin.machine.isa import host_isa
from srhpm_plugin.machine.kernels import chosen_kernels
from srhpm_plugin.native.hooks import load_hooks
from srhpm_plugin.native.recipe import native_dir


def run(program: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *args],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.mark.parametrize("columns", ["16", "0"])
def test_columns_do_not_depend_on_the_batch(server_dir: Path, columns: str) -> None:
    """On: each column of 1..16, every type, as computed alone. Off: upstream's differences."""
    done = run(server_dir / "test-exact", SRHPM_EXACT=columns)
    assert done.returncode == 0, done.stdout
    assert (" 0 columns differ" in done.stdout) == (columns == "16")


def test_kernels(server_dir: Path) -> None:
    done = run(server_dir / "test-kernels")
    assert done.returncode == 0, done.stdout


def test_kernels_for_floats(server_dir: Path) -> None:
    done = run(server_dir / "test-floats")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("isa", ["", "avx2", "portable"])
def test_packed_products(server_dir: Path, isa: str) -> None:
    """Each column of products over packed weights and floats as computed alone, and right."""
    if chosen_kernels(platform.machine(), host_isa(), isa) is None:
        pytest.skip(f"no {isa or 'fast'} kernels on this processor")
    env = {"SRHPM_EXACT": "33"} if isa == "avx2" else {}  # else floats up to 8
    done = run(server_dir / "test-packed", SRHPM_ISA=isa, OMP_WAIT_POLICY="passive", **env)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("setting", ["", "off"])
def test_states_in_place(server_dir: Path, setting: str) -> None:
    """Gated delta nets write their states to the cache, the same bits as by a copy; or do not."""
    args = (setting,) if setting else ()
    done = run(server_dir / "test-states", *args, SRHPM_ROLLBACK=setting, OMP_WAIT_POLICY="passive")
    assert done.returncode == 0, done.stdout


def test_weights_are_lent(server_dir: Path) -> None:
    """Packed weights read by others than our kernels, a GPU among them."""
    if chosen_kernels(platform.machine(), host_isa(), None) is None:
        pytest.skip("no fast kernels on this processor")
    done = run(server_dir / "test-offload", OMP_WAIT_POLICY="passive", SRHPM_EXACT="8")
    assert done.returncode == 0, done.stdout


def test_policy(server_dir: Path) -> None:
    done = run(server_dir / "test-policy")
    assert done.returncode == 0, done.stdout


def test_native_info(server_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRHPM_SERVER", str(server_dir / "llama-server"))
    result = CliRunner().invoke(cli, ["native", "info", "--json"])
    assert result.exit_code == 0, result.output
    info = json.loads(result.output)
    assert info["server_path"] == str(server_dir / "llama-server")
    assert info["llama_cpp_tag"] == "b11434"
    assert len(info["source_sha256"]) == 64
    names = {hook.name for hook in load_hooks(native_dir() / "hooks.toml")}
    assert {hook["name"] for hook in info["hooks"]} == names
    assert {hook["name"] for hook in info["hooks"] if not hook["applied"]} == {
        "backend-search-cwd-old"
    }
    assert "CPU" in info["backends"]
    assert info["isa"], "the server names the instruction sets it uses"
    *fast, last = info["kernels"]
    assert last == "portable"
    assert info["kernels_default"] == (fast[0] if fast else None)


def test_help_names_our_flags(server_dir: Path) -> None:
    done = subprocess.run(
        [str(server_dir / "llama-server"), "--help"], capture_output=True, text=True, check=True
    )
    for flag in ("--srhpm-draft-n-min", "--srhpm-draft-lengths", "--relax"):
        assert flag in done.stdout
    for variable in ("SRHPM_DRAFT_N_MIN", "SRHPM_DRAFT_LENGTHS", "SRHPM_RELAX"):
        assert variable in done.stdout
