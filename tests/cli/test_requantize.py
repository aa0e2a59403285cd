"""``requantize`` as a user sees it; with the real programs on the real small model."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

from srhpm_plugin.planner.headers import read_header
from srhpm_plugin.requantize.text import TEXT

Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _server(server_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(p for p in server_dir.iterdir() if p.stem == "llama-server")
    monkeypatch.setenv("SRHPM_SERVER", str(name))


def test_dry_run_writes_nothing(smollm2: Path, tmp_path: Path, shell: Shell) -> None:
    out = tmp_path / "out.gguf"
    code, said, _ = shell("requantize", smollm2, out, "--for-cpu", "--dry-run")
    assert code == 0
    assert "nothing was written" in said
    assert "another machine: ratios hold" in said
    assert list(tmp_path.iterdir()) == []
    _, text, _ = shell("requantize", smollm2, out, "--for-cpu", "--dry-run", "--json")
    report = json.loads(text)
    assert report["bytes"]["after"] < report["bytes"]["before"]
    assert 0 < report["loss_to_like"] <= 1
    assert report["written"] is None
    for ms in report["products_ms"].values():
        assert ms["ratio"] < 1
        assert ms["before"] is None, "no times of another machine"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--like", "Q7_K"), "give one of: "),
        (("--like", "F16", "--for-cpu"), "no mix of types is faster"),
    ],
)
def test_refusals(
    args: tuple[str, ...], words: str, smollm2: Path, tmp_path: Path, shell: Shell
) -> None:
    code, _, err = shell("requantize", smollm2, tmp_path / "out.gguf", *args)
    assert code == 1
    assert words in err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(smollm2: Path, tmp_path: Path, shell: Shell) -> None:
    out = tmp_path / "mine.gguf"
    out.write_text("mine")
    code, _, err = shell("requantize", smollm2, out)
    assert code == 1
    assert "it exists, and nothing is overwritten" in err
    assert out.read_text() == "mine"
    code, _, err = shell("requantize", smollm2, smollm2)
    assert (code, "nothing is overwritten" in err) == (1, True)


def test_a_folder_that_is_not_there(smollm2: Path, tmp_path: Path, shell: Shell) -> None:
    code, _, err = shell("requantize", smollm2, tmp_path / "gone" / "out.gguf")
    assert code == 1
    assert "there is no folder" in err


@pytest.mark.server
def test_the_file_is_what_was_said(smollm2: Path, tmp_path: Path, shell: Shell) -> None:
    before = hashlib.sha256(smollm2.read_bytes()).hexdigest()
    out = tmp_path / "out.gguf"
    code, text, err = shell("requantize", smollm2, out, "--for-cpu", "--json", "--threads", "2")
    assert code == 0, err
    report = json.loads(text)
    made = read_header(out)
    assert [p.name for p in tmp_path.iterdir()] == ["out.gguf"]
    assert sum(t.nbytes for t in made.tensors) == report["bytes"]["after"]
    count: dict[tuple[str, str], int] = {}
    for t in made.tensors:
        if len(t.shape) > 1:
            parts = t.name.removesuffix(".weight").split(".")
            key = parts[-1], t.type
            count[key] = count.get(key, 0) + 1
    told: dict[tuple[str, str], int] = {}
    for row in report["types"]:
        key = row["tensor"], row["to"]
        told[key] = told.get(key, 0) + row["count"]
    assert count == told
    # It still speaks: a model with weights in the wrong places is nats away.
    after = report["divergence"]["after"]
    assert 0 < after["mean"] < 1
    assert 0.5 < after["same_top"] < 1
    assert report["divergence"]["before"] is None, "the source is what it is held against"
    assert hashlib.sha256(smollm2.read_bytes()).hexdigest() == before


@pytest.mark.server
def test_a_larger_loss_is_measured_as_one(smollm2: Path, tmp_path: Path, shell: Shell) -> None:
    """Held against the original, the first step loses less than the second, coarser one."""
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    assert shell("requantize", smollm2, first, "--like", "Q5_0", "--no-measure")[0] == 0
    code, said, err = shell("requantize", first, second, "--like", "MXFP4", "--original", smollm2)
    assert code == 0, err
    assert "IN is quantized already" in said
    before, after = (
        float(next(line for line in said.splitlines() if f"  {name}: " in line).split()[1])
        for name in ("before", "after")
    )
    assert 0 < before < after


@pytest.fixture(scope="session")
def imatrix(server_dir: Path, smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An importance matrix of the small model, over the first 512 tokens of our text."""
    folder = tmp_path_factory.mktemp("imatrix")
    text, made = folder / "text.txt", folder / "imatrix.gguf"
    text.write_text(TEXT, encoding="utf-8")
    program = next(p for p in server_dir.iterdir() if p.stem == "llama-imatrix")
    argv: list[str | Path] = [program, "-m", smollm2, "-f", text, "-o", made]
    argv += ["-c", "128", "--chunks", "4", "-ngl", "0", "-t", "2"]
    subprocess.run(argv, check=True, capture_output=True, timeout=300)
    return made


@pytest.mark.server
def test_an_importance_matrix_is_used(
    smollm2: Path, imatrix: Path, tmp_path: Path, shell: Shell
) -> None:
    """llama-quantize notes it in the file; the same types get other weights; and it is measured."""
    plain, weighed = tmp_path / "plain.gguf", tmp_path / "weighed.gguf"
    args = ("--like", "Q3_K", "--threads", "2")
    assert shell("requantize", smollm2, plain, *args, "--no-measure")[0] == 0
    code, said, err = shell("requantize", smollm2, weighed, *args, "--imatrix", imatrix)
    assert code == 0, err
    noted = gguf.GGUFReader(weighed)
    entries = noted.get_field("quantize.imatrix.entries_count")
    assert entries is not None and entries.contents() > 0
    source = noted.get_field("quantize.imatrix.file")
    assert source is not None and source.contents() == str(imatrix)
    before = {t.name: t for t in gguf.GGUFReader(plain).tensors}
    assert {t.name: t.tensor_type for t in noted.tensors} == {
        name: t.tensor_type for name, t in before.items()
    }
    other = {t.name for t in noted.tensors if bytes(t.data) != bytes(before[t.name].data)}
    assert any("ffn_down" in name for name in other)
    after = re.search(r"  after: ([0-9.]+) \+- [0-9.]+ nats per token", said)
    assert after and 0 < float(after[1]) < 2


@pytest.mark.server
def test_what_is_no_importance_matrix(smollm2: Path, tmp_path: Path, shell: Shell) -> None:
    wrong, out = tmp_path / "wrong.gguf", tmp_path / "out.gguf"
    wrong.write_text("not a matrix")
    code, _, err = shell("requantize", smollm2, out, "--imatrix", wrong, "--no-measure")
    assert code == 1
    assert "Traceback" not in err and "wrong.gguf" in err
    assert [p.name for p in tmp_path.iterdir()] == ["wrong.gguf"]
