"""What doctor finds, and the exit code it ends with."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from srhpm_plugin.cli import _checks, _tools
from srhpm_plugin.cli._check import Check
from srhpm_plugin.cli.doctor import command, examine
from srhpm_plugin.home import cache_dir
from srhpm_plugin.machine.probe import probe
from srhpm_plugin.native import toolchain
from srhpm_plugin.plugins import GROUP, load

EXE = ".exe" if sys.platform == "win32" else ""


@pytest.fixture(autouse=True)
def _healthy(monkeypatch, tmp_path):
    """Nothing of the user's shows; a compiler is there; the plugins are the built-in ones."""
    for name in list(os.environ):
        if name.startswith("LLAMA_ARG_") or name in ("SRHPM_SERVER", "SRHPM_STOCK_SERVER", "CXX"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("CXX", sys.executable)
    monkeypatch.setattr(_checks, "plugins", lambda: load(metadata.EntryPoints()))
    monkeypatch.setattr("srhpm_plugin.native.locate.find_build", lambda: None)


@pytest.fixture
def server(server_dir: Path, monkeypatch) -> Path:
    program = server_dir / f"llama-server{EXE}"
    monkeypatch.setenv("SRHPM_SERVER", str(program))
    return program


def by_name(checks) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.mark.server
def test_healthy_machine(server):
    result = CliRunner().invoke(command, ["--json"])
    report = json.loads(result.output)
    assert result.exit_code == 0, result.output
    assert report["ok"] is True
    checks = {check["name"]: check for check in report["checks"]}
    assert str(server) in checks["server"]["detail"]
    assert "version" in checks["server"]["detail"]
    for name in (
        "plugins",
        "server",
        "compiler",
        "cmake",
        "ninja",
        "ccache",
        "environment",
        "processor",
    ):
        assert checks[name]["ok"] is True, checks[name]
    assert {"GPUs", "huge pages", "memory", "data folder", "cache folder"} <= checks.keys()


@pytest.mark.server
def test_warnings_leave_the_exit_code(server, monkeypatch):
    monkeypatch.setenv("LLAMA_ARG_N_CPU_MOE", "")
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "77")
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    (at,) = [i for i, line in enumerate(lines) if "LLAMA_ARG_N_CPU_MOE" in line and "empty" in line]
    assert lines[at].startswith("warn")
    assert "LLAMA_ARG_N_CPU_MOE" in lines[at + 1]  # the command that mends it
    assert any("LLAMA_ARG_CTX_SIZE" in line for line in lines)


def test_our_own_variables_are_options_too_when_empty(monkeypatch):
    monkeypatch.setenv("SRHPM_DRAFT_LENGTHS", "")
    monkeypatch.setenv("SRHPM_KERNELS", "off")
    (check,) = _checks.check_environment()
    assert (check.name, check.state) == ("SRHPM_DRAFT_LENGTHS", "warning")


def test_no_server_is_broken_and_names_the_command():
    result = CliRunner().invoke(command, ["--json"])
    report = json.loads(result.output)
    assert (result.exit_code, report["ok"]) == (1, False)
    (server,) = [check for check in report["checks"] if check["name"] == "server"]
    assert (server["state"], server["fix"]) == ("broken", "srhpm-plugin native build")


def test_variable_that_names_no_server(monkeypatch, tmp_path):
    monkeypatch.setenv("SRHPM_SERVER", str(tmp_path / "gone"))
    checks = by_name(examine())
    assert checks["server"].state == "broken"
    assert "SRHPM_SERVER" in checks["server"].detail
    assert checks["stock server"].state == "warning"


@pytest.mark.skipif(sys.platform == "win32", reason="a text file is no program on Windows")
def test_server_that_does_not_start(monkeypatch, tmp_path):
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho libgone.so: cannot open\nexit 127\n")
    program.chmod(0o755)
    monkeypatch.setenv("SRHPM_SERVER", str(program))
    (check,) = _checks.check_server()
    assert check.state == "broken"
    assert "libgone.so: cannot open" in check.detail
    assert check.fix == "srhpm-plugin native build --force"


def test_broken_plugins_are_named(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "srhpm_test_doctor_bad.py").write_text("raise SystemExit('no\\nlicence')")
    entry = metadata.EntryPoint("bad", "srhpm_test_doctor_bad", GROUP)
    monkeypatch.setattr(_checks, "plugins", lambda: load(metadata.EntryPoints([entry])))
    broken, rest = _checks.check_plugins()
    assert (broken.name, broken.state) == ("plugin bad", "broken")
    assert "SystemExit" in broken.detail
    assert rest.detail == "backends srhpm, stock"
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 1
    assert "skipped: SystemExit: no?licence" in result.output  # one line each


def test_plugins_that_fail_when_called_are_named(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "srhpm_test_doctor_late.py").write_text(
        "from srhpm_plugin.hookspecs import hookimpl\n"
        "@hookimpl\ndef srhpm_model_sources(): raise OSError('no share')\n"
    )
    entry = metadata.EntryPoint("late", "srhpm_test_doctor_late", GROUP)
    monkeypatch.setattr(_checks, "plugins", lambda: load(metadata.EntryPoints([entry])))
    (broken,) = _checks.check_plugins()
    assert (broken.name, broken.state) == ("plugin late", "broken")
    assert broken.detail == "OSError: no share"


def test_damaged_installation_is_reported(monkeypatch):
    def fail():
        raise ImportError("half of it is missing")

    monkeypatch.setattr(_checks, "plugins", fail)
    checks = by_name(examine())
    assert checks["plugins"].state == "broken"
    assert checks["server"].state == "broken"
    assert checks["memory"].detail  # the rest goes on


@pytest.mark.parametrize(("built", "state"), [(True, "warning"), (False, "broken")])
def test_no_compiler(monkeypatch, built, state):
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(toolchain, "_installed_program", lambda name, exe: None)
    compiler, cmake, ninja, ccache = _tools.check_tools(built)
    assert (compiler.state, compiler.detail) == (state, "there is no C++17 compiler")
    assert compiler.fix
    for tool in (cmake, ninja):
        assert tool.ok
        assert tool.detail == "not installed; a build will fetch it from PyPI"
    assert ccache.ok
    assert ccache.detail.startswith("not installed")


def test_tools_are_found_where_a_build_finds_them(monkeypatch, tmp_path):
    fetched = cache_dir() / "tools" / "cmake" / "cmake" / "data" / "bin" / f"cmake{EXE}"
    fetched.parent.mkdir(parents=True)
    fetched.write_bytes(b"\x7fELF")
    monkeypatch.setenv("PATH", str(tmp_path))
    _, cmake, _, _ = _tools.check_tools(True)
    assert cmake.detail == str(fetched)


@pytest.mark.skipif(sys.platform == "win32", reason="a text file is no program on Windows")
def test_old_cmake_is_said_to_be_replaced(monkeypatch, tmp_path):
    old = tmp_path / "cmake"
    old.write_text("#!/bin/sh\necho cmake version 3.5.1\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain, "_installed_program", lambda name, exe: None)
    _, cmake, _, _ = _tools.check_tools(True)
    assert cmake.detail == f"{old} is older than 3.18; a build will fetch it from PyPI"


def test_a_compiler_that_is_none(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    compiler = next(_tools.check_tools(False))
    assert (compiler.state, compiler.fix) == ("broken", "unset CXX")


def test_llama_cpp_configuration_is_a_warning(monkeypatch, tmp_path):
    monkeypatch.setattr(_checks, "_config_files", lambda: [tmp_path / "config.ini"])
    assert list(_checks.check_config_files()) == []
    (tmp_path / "config.ini").write_text("[*]\nspec-type = ngram-cache\n")
    (check,) = _checks.check_config_files()
    assert check.state == "warning"
    assert str(tmp_path) in check.detail


@pytest.mark.skipif(sys.platform == "win32", reason="the places differ")
def test_llama_cpp_configuration_places(tmp_path):
    assert tmp_path / "xdg" / "llama.cpp" / "config.ini" in _checks._config_files()


def test_notes_of_the_probe_are_warnings():
    note = "GPU X is there, but the server cannot use it: it was built without CUDA"
    machine = dataclasses.replace(probe(), notes=("odd file", note))
    odd, gpu = [check for check in _checks.check_machine(machine) if not check.ok]
    assert (odd.detail, odd.fix) == ("odd file", None)
    assert gpu.fix == "srhpm-plugin native build --cuda"


def test_folders(monkeypatch, tmp_path):
    home = tmp_path / "home"
    monkeypatch.setenv("SRHPM_HOME", str(home))
    assert all(check.state != "broken" for check in _checks.check_folders())
    assert not home.exists()  # looking changes nothing
    (tmp_path / "file").write_text("")
    for name in ("file", "file/below"):
        monkeypatch.setenv("SRHPM_HOME", str(tmp_path / name))
        (check,) = _checks.check_folders()
        assert check.state == "broken"
        assert f"{tmp_path / 'file'} is no folder" in check.detail
        assert "SRHPM_HOME" in (check.fix or "")


def test_folders_of_models(monkeypatch, tmp_path):
    monkeypatch.setenv("SRHPM_MODELS", str(tmp_path))
    (check,) = _checks.check_models()
    assert check.state == "ok"
    monkeypatch.setenv("SRHPM_MODELS", str(tmp_path / "gone"))
    (check,) = _checks.check_models()
    assert check.state == "warning"
    assert str(tmp_path / "gone") in check.detail
    assert "SRHPM_MODELS" in (check.fix or "")


def test_full_disk(monkeypatch):
    monkeypatch.setattr(_checks, "_DISK_LEAST", 1 << 62)
    assert [check.state for check in _checks.check_folders()] == ["warning", "warning", "ok"]
