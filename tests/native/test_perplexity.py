"""A text is as likely with our kernels as with upstream's.

Both round activations to eight bits, so neither is the truth, and probabilities of single tokens
differ. Upstream's own differ with the number of tokens in a pass (other kernels, other sums): that
is the measure of what may differ.
"""

from __future__ import annotations

import os
import pydoc_data.topics
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.server

CHUNKS = 3
CONTEXT = 512
OFF = {"SRHPM_KERNELS": "off", "SRHPM_EXACT": "0"}
ON = {"SRHPM_KERNELS": "speed", "SRHPM_EXACT": "8"}


class Perplexity:
    """``llama-perplexity`` over ``CHUNKS`` pieces of a text, the later half of each counts."""

    def __init__(self, server_dir: Path, model: Path, folder: Path) -> None:
        self.program = server_dir / "llama-perplexity"
        self.model = model
        self.text = folder / "topics.txt"
        self.base = folder / "logits"
        # English that every Python brings along; all runs of a test read the same.
        topics = pydoc_data.topics.topics
        self.text.write_text("".join(topics[key] for key in sorted(topics))[:60000], "utf-8")

    def run(self, env: dict[str, str], *args: str) -> str:
        command = [str(self.program), "-m", str(self.model), "-f", str(self.text), "-t", "2"]
        command += ["-c", str(CONTEXT), "--chunks", str(CHUNKS)]
        command += ["--kl-divergence-base", str(self.base), *args]
        done = subprocess.run(
            command,
            env={**os.environ, "OMP_WAIT_POLICY": "passive", **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def against_base(self, env: dict[str, str], width: int) -> dict[str, tuple[float, float]]:
        """Mean and its standard error of the divergence (nats per token) and of the logarithm of
        the perplexities' ratio, in passes of ``width`` tokens."""
        out = self.run(env, "--kl-divergence", "-ub", str(width))
        named = {"KLD": r"Mean +KLD", "ratio": r"Mean ln\(PPL\(Q\)/PPL\(base\)\)"}
        found = {}
        for name, label in named.items():
            match = re.search(label + r" *: +(-?[0-9.]+) ± +([0-9.]+)", out)
            assert match, out
            found[name] = float(match[1]), float(match[2])
        return found


@pytest.fixture(scope="module")
def perplexity(
    server_dir: Path, smollm2: Path, tmp_path_factory: pytest.TempPathFactory
) -> Perplexity:
    made = Perplexity(server_dir, smollm2, tmp_path_factory.mktemp("perplexity"))
    made.run(OFF)
    return made


@pytest.fixture(scope="module")
def upstreams_own(perplexity: Perplexity) -> float:
    mean, _ = perplexity.against_base(OFF, 4)["KLD"]
    assert mean > 0
    return mean


@pytest.mark.parametrize("width", [512, 4])
def test_as_near_upstream_as_it_is_to_itself(
    perplexity: Perplexity, upstreams_own: float, width: int
) -> None:
    """In passes as wide as for a prompt, and as for verifying drafted tokens."""
    ours = perplexity.against_base(ON, width)
    assert ours["KLD"][0] < 1.5 * upstreams_own
    ratio, error = ours["ratio"]
    assert abs(ratio) < 4 * error < 0.02
