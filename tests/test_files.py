"""What is said of a name that is no file's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.files import expand, not_a_file
from srhpm_plugin.plan import HostRequest
from srhpm_plugin.planner.checks import check_request
from srhpm_plugin.planner.names import find_model
from srhpm_plugin.planner.sources import known_models


@pytest.fixture(params=["empty", "folder", "device", "pipe", "below a file", "long", "nobody"])
def wrong(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A name and what is to be said of it."""
    kind = request.param
    if kind == "pipe":
        if not hasattr(os, "mkfifo"):
            pytest.skip("a POSIX thing")
        os.mkfifo(tmp_path / "pipe")
        return str(tmp_path / "pipe"), "it is a pipe, no regular file"
    if kind == "device":
        if os.name != "posix":
            pytest.skip("a POSIX thing")
        return "/dev/null", "it is a device, no regular file"
    (tmp_path / "file").touch()
    return {
        "empty": ("", "the name is empty"),
        "folder": (str(tmp_path), "it is a folder"),
        "below a file": (str(tmp_path / "file" / "x"), "there is no such file"),
        "long": (str(tmp_path / ("x" * 300)), "file name too long"),
        "nobody": ("~no-such-user/model.gguf", "there is no such file"),
    }[kind]


def test_words(wrong: tuple[str, str], tmp_path: Path) -> None:
    name, why = wrong
    if os.name == "posix" or "long" not in why:
        assert not_a_file(name) == why
    assert not_a_file(tmp_path / "none") == "there is no such file"
    (tmp_path / "there").touch()
    assert not_a_file(tmp_path / "there") is None


def test_a_model_of_that_name(wrong: tuple[str, str]) -> None:
    name, why = wrong
    with pytest.raises(UserError) as caught:
        find_model(name, known=[])
    if os.name == "posix" or "long" not in why:
        assert caught.value.why.startswith(why)


def test_a_projector_of_that_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it is a folder"):
        check_request(HostRequest(tmp_path / "m.gguf", mmproj=tmp_path))


def test_home_folder() -> None:
    assert expand("~/x") == Path.home() / "x"
    assert expand("~no-such-user/x") == Path("~no-such-user/x")


@pytest.mark.parametrize("name", ["SRHPM_MODELS", "HF_HOME", "HF_HUB_CACHE", "SRHPM_HOME"])
def test_variables_that_name_nobodys_home(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "~no-such-user/models")
    known_models()
