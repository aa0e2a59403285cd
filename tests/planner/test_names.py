"""From what a user types to a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.model import ModelInfo
from srhpm_plugin.planner.names import find_model, repository, short_name

HUB = Path("/hf/hub/models--bartowski--Qwen3-8B-GGUF/snapshots/0123/Qwen3-8B-Q4_K_M.gguf")
KNOWN = (HUB, Path("/m/big-70b-00001-of-00004.gguf"), Path("/m/twin.gguf"), Path("/n/twin.gguf"))


def test_short_names() -> None:
    assert [short_name(p) for p in KNOWN[:2]] == ["Qwen3-8B-Q4_K_M", "big-70b"]
    assert short_name(Path("sha256-0123")) == "sha256-0123"
    assert short_name(Path("v1.5")) == "v1.5"


def test_repositories() -> None:
    assert repository(HUB) == "bartowski/Qwen3-8B-GGUF"
    assert repository(Path("/m/models--odd/x.gguf")) is None


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("Qwen3-8B-Q4_K_M", HUB),
        ("qwen3-8b-q4_k_m", HUB),
        ("Qwen3-8B-Q4_K_M.gguf", HUB),
        ("bartowski/Qwen3-8B-GGUF", HUB),
        ("big-70b", KNOWN[1]),
    ],
)
def test_known_names(text: str, path: Path) -> None:
    assert find_model(text, KNOWN) == path


def test_a_path_needs_no_search(tmp_path: Path) -> None:
    path = tmp_path / "here.gguf"
    path.touch()
    assert find_model(str(path), ()) == path


def test_the_name_in_the_header(
    models: SimpleNamespace, headers: Callable[[ModelInfo], Path]
) -> None:
    path = headers(models.small)
    assert find_model("SMALL-0.6B", (*KNOWN, path)) == path


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("qwen3-8b", "did you mean: Qwen3-8B-Q4_K_M, bartowski/Qwen3-8B-GGUF"),
        ("bog-70b", "did you mean: big-70b"),
        ("/nowhere/big-70b.gguf", "did you mean: big-70b"),
        ("zzzz", "see the known ones with: srhpm-plugin models"),
        ("twin", "2 are called so"),
        ("", "see the known ones"),
        ("a\0b", "see the known ones"),
    ],
)
def test_no_such_name(text: str, part: str) -> None:
    with pytest.raises(UserError) as caught:
        find_model(text, KNOWN)
    assert part in caught.value.line()


def test_no_models_at_all() -> None:
    with pytest.raises(UserError, match="SRHPM_MODELS"):
        find_model("anything", ())


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it is a folder"):
        find_model(str(tmp_path), KNOWN)
