"""Services' variables, models on file servers, drafters that hosts pair wrongly."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from srhpm_plugin.cli._check import Check
from srhpm_plugin.cli._model_files import check_disks, check_drafters
from srhpm_plugin.cli._services import check_services
from srhpm_plugin.host import HostModel
from srhpm_plugin.machine.probe import probe
from srhpm_plugin.machine.tree import Tree
from srhpm_plugin.planner.hosted import Hosted

UNIT = "[Unit]\nDescription=x\n\n[Service]\nExecStart=/usr/local/bin/ollama serve\n"


def service(folder: Path, *lines: str, dropin: str | None = None) -> Path:
    file = folder / "ollama.service"
    folder.mkdir(exist_ok=True)
    file.write_text(UNIT)
    if dropin:
        file = folder / "ollama.service.d" / dropin
        file.parent.mkdir(exist_ok=True)
    with file.open("a") as out:
        out.writelines(line + "\n" for line in lines)
    return file


def checks(*folders: Path, server: Path | None = None, threads: int = 8) -> list[Check]:
    machine = probe()
    cpu = dataclasses.replace(machine.cpu, usable_performance=threads)
    return list(check_services(dataclasses.replace(machine, cpu=cpu), server, folders))


def test_a_service_without_options(tmp_path):
    service(tmp_path, 'Environment="OLLAMA_HOST=0.0.0.0"', "# Environment=LLAMA_ARG_THREADS=2")
    (check,) = checks(tmp_path, tmp_path / "gone")
    assert check.ok
    assert checks(tmp_path / "gone") == []


@pytest.mark.skipif(sys.platform == "win32", reason="systemd is Linux's")
def test_variables_of_a_service(tmp_path):
    file = service(
        tmp_path,
        "Environment=LLAMA_ARG_THREADS=4 LLAMA_ARG_CTX_SIZE=2048",
        'Environment="LLAMA_ARG_N_CPU_MOE="',
        dropin="override.conf",
    )
    threads, ctx, empty = checks(tmp_path)
    assert "plans here use 8 threads" in threads.detail
    assert "LLAMA_ARG_CTX_SIZE=2048" in ctx.detail
    assert "it is empty" in empty.detail
    assert threads.fix == (
        f"sudoedit {file} && sudo systemctl daemon-reload && sudo systemctl restart ollama.service"
    )


def test_the_same_file_by_two_ways_counts_once(tmp_path):
    service(tmp_path / "lib", "Environment=LLAMA_ARG_THREADS=8")
    (tmp_path / "etc").symlink_to(tmp_path / "lib", target_is_directory=True)
    (check,) = checks(tmp_path / "etc", tmp_path / "lib")
    assert "it is kept" in check.detail


@pytest.mark.server
def test_misspelt_variables(tmp_path, server_dir):
    server = next(p for p in server_dir.iterdir() if p.stem == "llama-server")
    service(tmp_path, "Environment=LLAMA_ARG_N_GPU_LAYER=7 LLAMA_ARG_N_GPU_LAYERS=7")
    misspelt, known = checks(tmp_path, server=server)
    assert "no option of the server, did you mean LLAMA_ARG_N_GPU_LAYERS" in misspelt.detail
    assert "no option" not in known.detail


def mounted(tmp_path: Path, *lines: str) -> Tree:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "mountinfo").write_text("\n".join(lines))
    return Tree(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="mounts are Linux's")
def test_models_on_file_servers(tmp_path):
    tree = mounted(
        tmp_path,
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw",
        "30 22 0:40 / /no/nas\\040one rw,relatime shared:9 - nfs4 host:/x rw,vers=4.2",
        "31 22 0:41 / /no/ssh rw - fuse.sshfs me@host: rw",
        "32 22 0:42 / /no/usb rw - fuseblk /dev/sdb1 rw",
        "33 30 8:2 / /no/nas\\040one/local rw - xfs /dev/sdc1 rw",
    )
    models = [
        Path("/no/nas one/a.gguf"),
        Path("/no/ssh/b.gguf"),
        Path("/no/usb/c.gguf"),
        Path("/no/nas one/local/d.gguf"),
        Path("/no/e.gguf"),
    ]
    nas, ssh = check_disks(models, tree)
    assert "/no/nas one (nfs4)" in nas.detail
    assert "cp '/no/nas one/a.gguf' " in nas.fix
    assert "/no/ssh (fuse.sshfs)" in ssh.detail


def model(path: Path, tokens: list[str], arch: str = "llama") -> Path:
    w = gguf.GGUFWriter(path, arch)
    w.add_block_count(1)
    w.add_context_length(1024)
    w.add_embedding_length(32)
    w.add_feed_forward_length(64)
    w.add_head_count(2)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model("gpt2")
    w.add_token_list(tokens)
    w.add_tensor("token_embd.weight", np.zeros((len(tokens), 32), np.float16))
    w.add_tensor("blk.0.ffn_up.weight", np.zeros((64, 32), np.float16))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def test_drafters_that_cannot_pair(tmp_path):
    words = [f"word {n}" for n in range(20)]
    target = model(tmp_path / "target.gguf", words)
    good = model(tmp_path / "good.gguf", words)
    bad = model(tmp_path / "bad.gguf", [*words[:9], "other", *words[10:]])

    def of(name: str, drafter: Path | None) -> Hosted:
        return Hosted("lemonade", HostModel(name, target, drafter=drafter))

    gone = tmp_path / "gone.gguf"
    found = check_drafters([of("a", good), of("b c", bad), of("d", None), of("e", gone)])
    wrong, missing = found
    assert wrong.name == "drafter in lemonade"
    assert "token 9 is 'other', the target's is 'word 9'" in wrong.detail
    assert wrong.fix == "srhpm-plugin plan 'b c'"
    assert str(gone) in missing.detail
