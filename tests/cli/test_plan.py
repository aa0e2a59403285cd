"""``plan`` as a user sees it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import gguf
import pytest
from click.testing import CliRunner

from srhpm_plugin.cli import cli
from srhpm_plugin.cli._plan_chart import plan_chart
from srhpm_plugin.gguf import read_header
from srhpm_plugin.machine.probe import probe
from srhpm_plugin.plan import HostRequest, Predicted
from srhpm_plugin.planner import make_plan


@pytest.fixture(autouse=True)
def _server(
    server_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = next(p for p in server_dir.iterdir() if p.stem == "llama-server")
    monkeypatch.setenv("SRHPM_SERVER", str(name))
    monkeypatch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hf")))
    monkeypatch.delenv("SRHPM_MODELS", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)


def run(*args: str, columns: int | None = None) -> subprocess.CompletedProcess[str]:
    """The command as its own process, its output piped."""
    import os

    env = dict(os.environ, PYTHONIOENCODING="utf-8")
    if columns:
        env["COLUMNS"] = str(columns)
    return subprocess.run(
        [sys.executable, "-c", "from srhpm_plugin.cli import main; main()", *args],
        capture_output=True, text=True, encoding="utf-8", env=env, timeout=120, check=False,
    )  # fmt: skip


def renamed(smollm2: Path, path: Path, name: str) -> Path:
    """A model that states ``name``: the real header's tokenizer, small weights of its own."""
    import numpy as np

    w = gguf.GGUFWriter(path, "llama")
    w.add_name(name)
    w.add_block_count(1)
    w.add_context_length(1024)
    w.add_embedding_length(32)
    w.add_feed_forward_length(64)
    w.add_head_count(2)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model("gpt2")
    w.add_token_list(["a", "b", "c"])
    w.add_tensor("token_embd.weight", np.zeros((3, 32), np.float16))
    w.add_tensor("blk.0.ffn_up.weight", np.zeros((64, 32), np.float16))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def test_sections(smollm2: Path) -> None:
    result = run("plan", str(smollm2), "--ctx", "2048", "--threads", "2", columns=40)
    assert result.returncode == 0, result.stderr
    out = result.stdout
    for title in ("Model", "Plan", "Memory", "Exactness", "Why", "Command"):
        assert re.search(rf"^{title}$", out, re.MULTILINE), out
    assert "\x1b" not in out
    assert "…" not in out
    assert not re.search(r" $", out, re.MULTILINE)
    assert str(smollm2) in out
    assert re.search(r"^▓ kv +45\.0 MiB$", out, re.MULTILINE)
    assert re.search(r"^CPU +[█▓▒▚▞▀░]+·* +\d+% of free$", out, re.MULTILINE)
    # The command stands on a line of its own and is whole.
    last = out.strip().splitlines()[-1]
    assert last.endswith("--offline") or str(smollm2) in last


def test_plot(smollm2: Path, tmp_path: Path) -> None:
    chart = tmp_path / "plan.svg"
    result = run("plan", str(smollm2), "--ctx", "2048", "--draft", "none", "--plot", str(chart))
    assert result.returncode == 0, result.stderr
    texts = [e.text for e in ElementTree.parse(chart).iter() if e.tag.endswith("}text")]
    assert {"CPU", "weights", "kv", "Memory per device", "all that is free"} <= set(texts)
    assert "Time" not in texts, "nothing was measured in this home"
    (footer,) = [text for text in texts if text and text.startswith("context 2048")]
    assert "speed not measured" in footer
    result = run("plan", str(smollm2), "--plot", str(tmp_path / "gone" / "plan.svg"))
    assert result.returncode == 1
    assert re.fullmatch(r"error: cannot write [^\n]+: [^\n]+; [^\n]+\n", result.stderr)


def test_plot_with_times(smollm2: Path) -> None:
    plan = make_plan(HostRequest(smollm2, draft="none"), command=False)
    known = replace(plan, predicted=Predicted(20.0, 10.0, 70.0, None, "calibrated"))
    text = plan_chart(known)
    for words in ("Time", "100.0 ms", "50.0 ms, 2.00x", "70.0 ms", "times calibrated"):
        assert words in text


def test_argv_is_the_command_alone(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Free RAM, of which caches get a share, must not change between two plans that are compared.
    machine = probe(None)
    monkeypatch.setattr("srhpm_plugin.planner.make.probe", lambda server: machine)
    asked = ["plan", str(smollm2), "--draft", "none", "--ctx", "512"]
    result = CliRunner().invoke(cli, [*asked, "--argv"], catch_exceptions=False)
    assert result.output.count("\n") == 1
    words = shlex.split(result.output)
    while "=" in words[0]:
        words.pop(0)
    assert Path(words[0]).stem == "llama-server"
    plan = json.loads(CliRunner().invoke(cli, [*asked, "--json"]).output)
    assert words == plan["argv"]
    assert words[words.index("--ctx-size") + 1] == "512"


def test_json_has_what_was_asked(smollm2: Path) -> None:
    result = run(
        "plan", str(smollm2), "--json", "--ctx", "1024", "--parallel", "2", "--threads", "3",
        "--relax", "0.5", "--cache-type-k", "q8_0", "--cache-type-v", "q8_0", "--draft", "ngram",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    assert (plan["ctx"], plan["parallel"], plan["threads"], plan["relax"]) == (1024, 2, 3, 0.5)
    assert (plan["cache_type_k"], plan["cache_type_v"]) == ("q8_0", "q8_0")
    assert plan["draft"]["type"] == "ngram"
    assert plan["exact"] == []


def test_kernels_are_a_choice(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SRHPM_KERNELS", raising=False)
    ask = ("plan", str(smollm2), "--json", "--draft", "none")
    plan = json.loads(run(*ask).stdout)
    assert plan["kernels"] == "speed"
    assert "SRHPM_KERNELS" not in plan["env"]
    off = json.loads(run(*ask, "--kernels", "off").stdout)
    assert (off["kernels"], off["env"]["SRHPM_KERNELS"]) == ("off", "off")
    monkeypatch.setenv("SRHPM_KERNELS", "off")
    assert json.loads(run(*ask).stdout)["env"]["SRHPM_KERNELS"] == "off"
    forced = json.loads(run(*ask, "--kernels", "speed").stdout)
    assert (forced["kernels"], forced["env"]["SRHPM_KERNELS"]) == ("speed", "speed")
    monkeypatch.setenv("SRHPM_KERNELS", "fast")
    failed = run(*ask)
    assert failed.returncode == 1
    assert re.fullmatch(r"error: [^\n]+: [^\n]+; [^\n]+\n", failed.stderr)


def test_more_context_than_trained_is_a_warning(smollm2: Path) -> None:
    result = run("plan", str(smollm2), "--json", "--ctx", "100000", "--draft", "none")
    plan = json.loads(result.stdout)
    (warning,) = plan["warnings"]
    assert "instead of the 100000 tokens asked for" in warning
    assert warning in plan["reasons"]
    assert result.stderr == f"warning: {warning}\n"
    result = run("plan", str(smollm2), "--ctx", "512", "--draft", "none", "--json")
    assert (json.loads(result.stdout)["warnings"], result.stderr) == ([], "")


def test_the_drafter_beside_the_target_is_found(smollm2: Path, tmp_path: Path) -> None:
    # A target four times as large with the same vocabulary: the small model's header, and room.
    (tmp_path / "drafter.gguf").symlink_to(smollm2)
    result = run("plan", str(tmp_path / "drafter.gguf"), "--json", "--draft", str(smollm2))
    assert result.returncode == 0, result.stderr
    draft = json.loads(result.stdout)["draft"]
    assert draft["type"] == "draft-simple"
    assert Path(draft["path"]) == smollm2
    assert (draft["n_min"], draft["n_max"]) == (3, 7)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("--ctx", "0"), 2),
        (("--ctx", "many"), 2),
        (("--parallel", "0"), 2),
        (("--threads", "-1"), 2),
        (("--relax", "-1"), 2),
        (("--relax", "nan"), 1),
        (("--cache-type-k", "f17"), 1),
        (("--draft", "/none/such.gguf"), 1),
        (("--draft", ""), 1),
        (("--draft", "/"), 1),
        (("--draft", "~no-such-user/x"), 1),
        (("--backend", "other"), 1),
        (("--kernels", "fast"), 2),
        (("--argv", "--json"), 2),
    ],
)
def test_wrong_options(args: tuple[str, ...], code: int, smollm2: Path) -> None:
    result = run("plan", str(smollm2), *args)
    assert result.returncode == code, result
    assert "Traceback" not in result.stderr
    if code == 1:
        assert re.fullmatch(r"error: [^\n]+: [^\n]+; [^\n]+\n", result.stderr)


def test_empty_names_are_called_so(smollm2: Path) -> None:
    for args in (("",), (str(smollm2), "--draft", "")):
        assert "the name is empty" in run("plan", *args).stderr


def test_damaged_files(damaged_gguf: tuple[Path, str]) -> None:
    path, part = damaged_gguf
    result = run("plan", str(path))
    assert result.returncode == 1
    assert re.fullmatch(r"error: [^\n]+\n", result.stderr)
    assert part in result.stderr


def test_an_unknown_name(smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smollm2-135m-q4.gguf").symlink_to(smollm2)
    monkeypatch.setenv("SRHPM_MODELS", str(tmp_path))
    result = run("plan", "smollm2")
    assert result.returncode == 1
    assert "did you mean: smollm2-135m-q4" in result.stderr
    assert run("plan", "smollm2-135m-q4", "--argv").returncode == 0


@pytest.mark.parametrize(
    "name", ["[red]alarm[/red]", "[/]", "]8;;x", "nul :smile: [link=http://x]y[/link]"]
)
def test_names_are_printed_as_they_are(name: str, smollm2: Path, tmp_path: Path) -> None:
    result = run("plan", str(renamed(smollm2, tmp_path / "m.gguf", name)))
    assert result.returncode == 0, result.stderr
    assert f"- {name}\n" in result.stdout


def test_control_characters_never_reach_the_terminal(smollm2: Path, tmp_path: Path) -> None:
    path = renamed(smollm2, tmp_path / "m.gguf", "a\x1b[2Jb\rc\u202ed")
    result = run("plan", str(path))
    assert result.returncode == 0, result.stderr
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", result.stdout)


def test_an_output_without_the_characters(smollm2: Path, tmp_path: Path) -> None:
    path = renamed(smollm2, tmp_path / "m.gguf", "模型")
    result = CliRunner(charset="ascii").invoke(cli, ["plan", str(path)])
    assert result.exit_code == 0, result.output
    assert "█" not in result.output


def test_a_narrow_terminal_wraps_and_loses_nothing(smollm2: Path) -> None:
    import io

    from rich.console import Console

    from srhpm_plugin.cli.plan import print_plan

    plan = make_plan(HostRequest(smollm2, ctx=2048))
    screen = io.StringIO()
    print_plan(plan, Console(file=screen, width=30, force_terminal=True, color_system=None))
    head, command = screen.getvalue().split("\nCommand\n")
    assert max(len(line) for line in head.splitlines()) <= 30
    assert command.count("\n") == 1
    joined = re.sub(r"[\s-]+", "", head)
    for reason in plan.reasons:
        assert re.sub(r"[\s-]+", "", reason) in joined


def test_without_a_server(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SRHPM_SERVER")
    result = run("plan", str(smollm2))
    assert result.returncode == 0, result.stderr
    assert "srhpm-plugin native build" in result.stdout
    assert json.loads(run("plan", str(smollm2), "--json").stdout)["argv"] == []
    result = run("plan", str(smollm2), "--argv")
    assert result.returncode == 1
    assert "srhpm-plugin native build" in result.stderr


def test_a_split_model(smollm2: Path, tmp_path: Path, split_gguf: object) -> None:
    first = split_gguf(smollm2, tmp_path, 3)  # type: ignore[operator]
    whole = json.loads(run("plan", str(smollm2), "--json", "--draft", "none").stdout)
    split = json.loads(run("plan", str(first), "--json", "--draft", "none").stdout)
    assert split["model"]["bytes"] == whole["model"]["bytes"]
    assert [m["weights"] for m in split["memory"]] == [m["weights"] for m in whole["memory"]]
    assert read_header(first).data_offset > 0
