"""Figures of machines nobody has measured, and stand-ins for the programs that measure."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.calibrate import Attention, Calibration, Passes, Read, Serving
from srhpm_plugin.calibrate.data import WIDTHS
from srhpm_plugin.calibrate.products import FLOATS, TYPES
from srhpm_plugin.calibrate.store import facts
from srhpm_plugin.machine.types import Cpu, Machine, Memory

# All three in one. A byte of any weight costs ours 1 + (M - 1) / 8 times 0.05 ns and stock M times
# 0.05 ns; passes have a layer of 0.1 ms and attention of 0.001 ms a position and token.
PROGRAM = """#!{python}
import json, os, runpy, sys
name, argv = os.path.basename(sys.argv[0]), sys.argv[1:]
said = dict(zip(argv, argv[1:]))
def say(event, **more):
    print(json.dumps(dict(more, event=event)), flush=True)
def layers(path):
    return 26 if "deep" in path else 24 if "attention" in path else 2
if "--list-devices" not in argv:
    with open({log!r}, "a") as log:
        log.write(json.dumps([name, argv, os.environ.get("SRHPM_KERNELS")]) + "\\n")
if name == "bench-kernels" and "--memory" in argv:
    for threads in (1, int(said["--threads"])):
        for pages in ("small", "huge"):
            for r in range(int(said["--rounds"])):
                ms = 10.0 / threads / (2 if pages == "huge" else 1)
                say("memory", threads=threads, pages=pages, round=r, bytes=10**8, ms=ms)
elif name == "bench-kernels" and "--info" in argv:
    say("start", isa="avx2", cache_bytes=1 << 20)
elif name == "bench-kernels":
    kind = said["--types"]
    if kind == {broken!r}:
        sys.exit("error: this type is broken")
    say("start", isa="avx2", rounds=int(said["--rounds"]))
    say("type", type=kind, packed_bytes=2 * 10**8, file_bytes=10**8, stock_buffer="CPU")
    for r in range(int(said["--rounds"])):
        for m in map(int, said["--m"].split(",")):
            ours, stock = 10.0 * (1 + (m - 1) / 8), 5.0 * m
            if "--plain" in argv:
                off = os.environ["SRHPM_KERNELS"] == "off"
                ms = stock if off else ours / 2
                say("sample", type=kind, engine="plain", m=m, round=r, ms=ms)
            else:
                say("sample", type=kind, engine="ours", m=m, round=r, ms=ours)
                say("sample", type=kind, engine="stock", m=m, round=r, ms=stock)
elif name == "llama-bench":
    path, anew = said["-m"], bool(os.environ.get("LLAMA_GRAPH_REUSE_DISABLE"))
    out = []
    for d in map(int, said["-d"].split(",")):
        for m in map(int, said["-p"].split(",")):
            ms = 0.2 + layers(path) * (0.1 + 0.02 * anew) + m * d * 0.001
            out.append(dict(n_prompt=m, n_gen=0, n_depth=d, samples_ns=[int(ms * 1e6)] * 3))
    print(json.dumps(out))
else:
    drafting = "draft-simple" in argv
    speed = "2000" if "shallow" in said["--model"] else "500" if drafting else "1000"
    sys.argv = [{server!r}, *argv, "--tok-s", speed]
    sys.argv += ["--drafted", "120", "--accepted", "120"] if drafting else []
    runpy.run_path({server!r}, run_name="__main__")
"""


@pytest.fixture
def built(
    tmp_path: Path, fake_server: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """``built(broken=...)`` puts the stand-ins in the place of a build; returns the log of what was
    run, a JSON line each: program, arguments, ``SRHPM_KERNELS``."""
    if sys.platform == "win32":
        pytest.skip("a text file is no program on Windows")

    def build(broken: str = "") -> Path:
        log = tmp_path / "log"
        for name in ("llama-server", "llama-bench", "bench-kernels"):
            path = tmp_path / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(
                PROGRAM.format(
                    python=sys.executable, log=str(log), server=fake_server[1], broken=broken
                )
            )
            path.chmod(0o755)
        monkeypatch.setenv("SRHPM_SERVER", str(tmp_path / "bin" / "llama-server"))
        return log

    return build


OURS = {1: 0.05, 2: 0.05, 4: 0.055, 8: 0.08}
STOCK = {1: 0.05, 2: 0.08, 4: 0.12, 8: 0.2}


@pytest.fixture
def measured_machine() -> Machine:
    """A machine with four cores and AVX2."""
    cpu = Cpu("test", 8, 4, 4, 4, 4, None, True, ("avx2", "f16c", "fma"))
    return Machine(cpu, Memory(32 << 30, 24 << 30, 0, None, "madvise", 1), ())


@pytest.fixture
def calibration() -> Callable[..., Calibration]:
    """``calibration(machine, **changes)``: 20 GB/s, our kernels read the weights once for up to
    four tokens, attention and overhead are small."""

    def make(machine: Machine, **changes: Any) -> Calibration:
        overhead = Passes(dict.fromkeys(WIDTHS, 0.1), {1: 0.02, 2: 0.02, 4: 0.03, 8: 0.04}, 0.01)
        made = Calibration(
            about=facts(machine),
            taken=1.7e9,
            seconds=50.0,
            load=0.1,
            threads=4,
            reads=(Read(1, "small", 10.0), Read(4, "huge", 20.0)),
            products={
                "ours": {name: dict(OURS) for name in (*TYPES, *FLOATS)},
                "stock": {name: dict(STOCK) for name in (*TYPES, *FLOATS)},
            },
            attention={"ours": Attention(0.02, 0.02), "stock": Attention(0.05, 0.0)},
            passes={"ours": overhead, "stock": overhead},
            serving=Serving(0.2, 0.005, 0.005),
        )
        return replace(made, **changes)

    return make
