"""``bench kernels`` as a user sees it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest

from srhpm_plugin.cli import bench_kernels

Shell = Callable[..., tuple[int, str, str]]

# Both programs in one: measures nothing, takes any type.
FAKE = """#!{python}
import json, sys
argv = dict(zip(sys.argv[1::2], sys.argv[2::2]))
def say(event, **more):
    print(json.dumps(dict(more, event=event)), flush=True)
if "--help" in sys.argv:
    print("--n-prompt --repetitions")
elif "-p" in argv:
    print(json.dumps([dict(n_prompt=int(m), n_gen=0, samples_ns=[1000000] * 3)
                      for m in argv["-p"].split(",")]))
elif "--info" in sys.argv:
    say("start", isa="avx2")
else:
    ms = [int(m) for m in argv["--m"].split(",")]
    types, rounds = argv.get("--types", "Q4_K").upper().split(","), int(argv["--rounds"])
    say("start", isa="avx2", rounds=rounds, rows=int(argv["--rows"]), cols=int(argv["--cols"]),
        m=ms, types=types, reads=1, threads=int(argv["--threads"]))
    for t in types:
        say("type", type=t, packed_bytes=10**6, stock_buffer="CPU")
        for m in ms:
            say("columns", type=t, m=m, ours=m < 8, stock=False)
        for r in range(rounds):
            say("sample", type=t, engine="read", ahead=0, round=r, ms=0.5)
            for m in ms:
                say("sample", type=t, engine="ours", m=m, round=r, ms=1.0 + r)
                say("sample", type=t, engine="stock", m=m, round=r, ms=2.0 * m)
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of stand-ins in the place of a build, on an idle machine."""
    if sys.platform == "win32":
        pytest.skip("a text file is no program on Windows")
    for name in ("llama-server", "llama-bench", "bench-kernels"):
        path = tmp_path / name
        path.write_text(FAKE.format(python=sys.executable))
        path.chmod(0o755)
    monkeypatch.setenv("SRHPM_SERVER", str(tmp_path / "llama-server"))
    monkeypatch.setattr(psutil, "getloadavg", lambda: (0.0, 0.0, 0.0))
    return tmp_path


def test_json(shell: Shell, programs: Path) -> None:
    code, out, err = shell(
        "bench", "kernels", "--types", "q4_k, q8_0,Q4_K", "--m", "1,8,1", "--rows", 64, "--cols",
        32, "--threads", 3, "--rounds", 3, "--json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["machine"]["cpu"]["physical"] >= 1
    assert report["machine"]["load_average"] == 0.0
    assert report["build"]["program"] == str(programs / "bench-kernels")
    assert (report["threads"], report["rounds"], report["warnings"]) == (3, 3, [])
    rows = report["rows"]
    assert [(r["type"], r["m"]) for r in rows] == [
        ("Q4_K", 1), ("Q4_K", 8), ("Q8_0", 1), ("Q8_0", 8),
    ]  # fmt: skip
    assert [r["bit_identical"] for r in rows] == [True, False] * 2
    assert rows[0]["isa"] == "avx2"
    assert (rows[0]["rows"], rows[0]["cols"]) == (64, 32)
    assert rows[1]["ms_median"] == 2.0


def test_people(shell: Shell, programs: Path, tmp_path: Path) -> None:
    plot = tmp_path / "chart.svg"
    code, out, err = shell("bench", "kernels", "--plot", plot, "--rounds", 3, "--threads", 1)
    assert code == 0
    lines = out.splitlines()
    assert "by stock" in lines[0]
    assert lines[1].split()[:6] == ["Q4_K", "1", "2.00", "(1.00", "-", "3.00)"]
    assert lines[-2].split()[-1] == "NO"
    assert "avx2, 1 thread; median and range of 3 rounds in turn, matrices 4096 x 4096" in out
    assert max(map(len, lines[:-1])) <= 80
    assert "Q4_K: round 3 of 3" in err
    ElementTree.parse(plot)


def test_models(shell: Shell, programs: Path, smollm2: Path, tmp_path: Path) -> None:
    plot = tmp_path / "chart.svg"
    args = ("bench", "kernels", smollm2, "--m", "1,2", "--rounds", 2, "--plot", plot)
    code, out, _ = shell(*args, "--json")
    assert code == 0
    rows = json.loads(out)["rows"]
    assert [(r["m"], r["model"]) for r in rows] == [(1, smollm2.name), (2, smollm2.name)]
    assert {r["stock"] for r in rows} == {str(programs / "llama-bench")}
    assert rows[0]["isa"] == "avx2"
    assert rows[0]["bit_identical"] is None
    assert len(rows[0]["samples_ms"]) == 6
    ElementTree.parse(plot)
    code, out, _ = shell(*args, "--against", programs / "bench-kernels")
    assert code == 0, "any program that has the options will do"
    assert "equal" not in out, "nothing was compared"
    assert "matrices" not in out


def test_a_busy_machine_is_said(
    shell: Shell, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "getloadavg", lambda: (1.5, 0.0, 0.0))
    _, out, err = shell("bench", "kernels", "--rounds", 1, "--json")
    (warning,) = json.loads(out)["warnings"]
    assert "load average 1.5" in warning
    assert err == f"warning: {warning}\n"


def test_threads_are_a_plans(shell: Shell, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_kernels, "_threads", lambda machine: 5)
    _, out, _ = shell("bench", "kernels", "--rounds", 1, "--json")
    assert json.loads(out)["threads"] == 5


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["model.gguf", "--types", "q4_k"], "go without MODEL"),
        (["model.gguf", "--mib", "1"], "go without MODEL"),
        (["--against", "x"], "--against needs a MODEL"),
        (["--m", "0"], "no list of numbers from 1 to 512"),
        (["--m", "1,,2"], "no list of numbers"),
        (["--rounds", "0"], "--rounds"),
    ],
)
def test_wrong_usage(shell: Shell, programs: Path, args: list[str], why: str) -> None:
    code, out, err = shell("bench", "kernels", *args)
    assert (code, out) == (2, "")
    assert why in err


def test_refusals(shell: Shell, programs: Path, smollm2: Path, tmp_path: Path) -> None:
    def refused(*args: object) -> str:
        code, out, err = shell("bench", "kernels", *args)
        assert (code, out, err.count("\n")) == (1, "", 1)
        return err

    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho --ctx-size --port\n")
    other.chmod(0o755)
    assert "it is no llama-bench: its --help" in refused(smollm2, "--against", other)
    assert "it is no program" in refused(smollm2, "--against", tmp_path / "none")
    assert "cannot write" in refused("--plot", tmp_path)
    assert "no model" in refused(tmp_path / "none.gguf")
    (programs / "bench-kernels").unlink()
    assert "no program bench-kernels" in refused()


@pytest.mark.server
def test_the_real_program(shell: Shell, server_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Structure and exactness, never a time."""
    monkeypatch.setenv("SRHPM_SERVER", str(server_dir / "llama-server"))
    code, out, err = shell(
        "bench", "kernels", "--types", "q4_0,Q4_K,iq2_xs", "--m", "1,3,8", "--rows", 512,
        "--cols", 512, "--mib", 2, "--rounds", 2, "--threads", 2, "--json",
    )  # fmt: skip
    assert code == 0, err
    rows = json.loads(out)["rows"]
    assert [(r["type"], r["m"]) for r in rows] == [
        (name, m) for name in ("Q4_0", "Q4_K", "IQ2_XS") for m in (1, 3, 8)
    ]
    for row in rows:
        assert row["bit_identical"] is True
        assert row["bytes"] >= 2 << 20
        assert len(row["samples_ms"]) == len(row["stock_samples_ms"]) == 2
        assert row["stock"] != "CPU_SRHPM"
    code, _, err = shell("bench", "kernels", "--types", "q4_k,x", "--rounds", 1)
    assert (code, err.splitlines()[-1].count("'X' is no weight type")) == (1, 1)
