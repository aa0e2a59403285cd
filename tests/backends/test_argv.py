"""What a plan becomes on the command line and in the environment."""

from __future__ import annotations

import dataclasses
import json
import platform
from pathlib import Path

import pytest

from srhpm_plugin.backend import Backend
from srhpm_plugin.backends import srhpm as srhpm_module
from srhpm_plugin.backends.repack import varying_types
from srhpm_plugin.backends.srhpm import SrhpmBackend, exact_columns
from srhpm_plugin.backends.stock import OFF, StockBackend
from srhpm_plugin.errors import UserError
from srhpm_plugin.model import Tensor
from srhpm_plugin.plan import Draft, MemoryUse

pytestmark = pytest.mark.usefixtures("any_program")


def options(argv: tuple[str, ...]) -> dict[str, str]:
    """Flag -> the value after it (empty for flags without)."""
    found: dict[str, str] = {}
    for flag, value in zip(argv[1:], [*argv[2:], "--"], strict=True):
        if flag.startswith("--"):
            assert flag not in found, f"{flag} twice"
            found[flag] = "" if value.startswith("--") else value
    return found


@pytest.fixture(params=[SrhpmBackend, StockBackend])
def backend(request) -> Backend:
    return request.param()


@pytest.fixture
def x86(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(srhpm_module, "host_isa", lambda: ("avx2", "avx512f"))


@pytest.fixture
def kernels(monkeypatch):
    """An x86 processor that our kernels run on; call it with more instruction sets to add."""

    def add(*more):
        monkeypatch.setattr(srhpm_module, "host_isa", lambda: ("avx2", "fma", "f16c", *more))

    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    add()
    return add


def test_backends_keep_the_contract(backend, any_program):
    assert isinstance(backend, Backend)
    assert backend.server() == any_program
    assert backend.ready_url("http://127.0.0.1:80/") == "http://127.0.0.1:80/health"
    assert backend.missing().startswith("srhpm-plugin ")


def test_the_basics(backend, make_plan, any_program):
    plan = make_plan(ctx=4096, parallel=3, threads=6, cache_type_k="q8_0", cache_type_v="f16")
    argv = backend.command(plan).argv
    assert argv[0] == str(any_program)
    found = options(argv)
    assert found["--model"] == str(plan.model.path)
    assert found["--ctx-size"] == "12288"  # the server divides it by the slots
    assert found["--parallel"] == "3"
    assert found["--threads"] == found["--threads-batch"] == "6"
    assert (found["--cache-type-k"], found["--cache-type-v"]) == ("q8_0", "f16")
    assert found["--flash-attn"] == "on"
    assert (found["--cache-ram"], found["--ctx-checkpoints"]) == ("64", "1")
    assert (found["--gpu-layers"], found["--fit"]) == ("0", "off")
    assert found["--spec-type"] == "none"
    assert {"--no-webui", "--offline"} <= found.keys()
    assert not {"--host", "--port", "--mmproj", "--n-cpu-moe", "--device"} & found.keys()


def test_drafter_on_the_cpu(backend, make_plan, drafts):
    found = options(backend.command(make_plan(draft=drafts["draft-simple"])).argv)
    assert found["--spec-type"] == "draft-simple"
    assert found["--spec-draft-model"] == str(drafts["draft-simple"].path)
    assert (found["--spec-draft-n-max"], found["--spec-draft-p-min"]) == ("7", "0.75")
    assert found["--spec-draft-threads"] == found["--spec-draft-threads-batch"] == "2"
    assert (found["--spec-draft-device"], found["--spec-draft-ngl"]) == ("none", "0")
    assert "--spec-draft-n-min" not in found  # upstream's discards shorter drafts


def test_drafter_on_the_gpu(backend, make_plan, drafts):
    draft = dataclasses.replace(drafts["draft-simple"], device="CUDA0")
    found = options(backend.command(make_plan(draft=draft, gpu=True)).argv)
    assert (found["--spec-draft-device"], found["--spec-draft-ngl"]) == ("CUDA0", "all")


def test_mtp_needs_no_second_model(backend, make_plan, drafts):
    found = options(backend.command(make_plan(draft=drafts["draft-mtp"])).argv)
    assert found["--spec-type"] == "draft-mtp"
    assert (found["--spec-draft-n-max"], found["--spec-draft-p-min"]) == ("3", "0.5")
    assert not {"--spec-draft-model", "--spec-draft-device"} & found.keys()


@pytest.mark.parametrize(
    ("n_min", "n_max", "lookup"), [(0, 7, 3), (5, 7, 5), (9, 7, 7), (0, 2, 2), (0, 1, 1)]
)
def test_ngram_sizes(backend, make_plan, n_min, n_max, lookup):
    found = options(backend.command(make_plan(draft=Draft("ngram", None, n_min, n_max, 0.9))).argv)
    assert found["--spec-type"] == "ngram-simple"
    assert found["--spec-ngram-simple-size-n"] == str(lookup)
    assert found["--spec-ngram-simple-size-m"] == str(n_max)
    assert not any(flag.startswith("--spec-draft") for flag in found)


def test_placement_and_projector(backend, make_plan):
    plan = make_plan(gpu=True, gpu_layers=3, cpu_moe=2, mmproj=Path("eye.gguf"))
    found = options(backend.command(plan).argv)
    assert (found["--gpu-layers"], found["--n-cpu-moe"], found["--fit"]) == ("3", "2", "off")
    assert found["--mmproj"] == "eye.gguf"
    assert "--no-mmproj-offload" not in found
    plan = make_plan(mmproj=Path("eye.gguf"))
    assert "--no-mmproj-offload" in options(backend.command(plan).argv)


def test_idle_gpu_is_left_out_by_ours_only(make_plan):
    plan = make_plan(gpu=True)
    assert options(SrhpmBackend().command(plan).argv)["--device"] == "none"
    assert "--device" not in options(StockBackend().command(plan).argv)
    plan = make_plan(gpu=True, gpu_layers=1)
    assert "--device" not in options(SrhpmBackend().command(plan).argv)


@pytest.mark.usefixtures("x86")
@pytest.mark.parametrize(
    ("types", "plain"),
    [
        (("Q4_K", "Q6_K"), True),
        (("Q2_K",), True),
        (("Q4_0", "IQ4_NL", "MXFP4", "Q6_K", "F32"), False),
    ],
)
def test_repacking(make_plan, types, plain):
    plan = make_plan(types)
    assert ("--no-repack" in SrhpmBackend().command(plan).argv) == plain
    assert "--no-repack" not in StockBackend().command(plan).argv


def test_states_are_copied_where_the_plan_says_so(make_plan):
    name = "SRHPM_ROLLBACK"
    assert name not in SrhpmBackend().command(make_plan()).env
    assert SrhpmBackend().command(make_plan(rollback="copy")).env[name] == "copy"
    assert StockBackend().command(make_plan()).env[name] == "off"


@pytest.mark.parametrize("types", [("Q4_K", "Q6_K", "F32"), ("Q2_K", "IQ1_S"), ("Q4_0",)])
def test_kernels_need_repacking_allowed(make_plan, kernels, types):
    """--no-repack would switch off our buffer type too."""
    assert "--no-repack" not in SrhpmBackend().command(make_plan(types)).argv
    off = SrhpmBackend().command(make_plan(types, kernels="off"))
    assert ("--no-repack" in off.argv) == (types != ("Q4_0",))
    assert off.env["SRHPM_KERNELS"] == "off"


def test_what_amx_varies_goes_before_speed(make_plan, kernels):
    """AMX takes F16 before our kernels do, and its product depends on the columns."""
    kernels("amx_int8")
    types = ("Q8_0", "F16")
    assert "--no-repack" in SrhpmBackend().command(make_plan(types)).argv
    answer = SrhpmBackend().kernels(types, "speed", ("avx2", "fma", "f16c", "amx_int8"))
    assert answer.isa is None
    assert "F16" in answer.why
    assert "--no-repack" not in SrhpmBackend().command(make_plan(("Q8_0", "F32"))).argv


def test_which_kernels(kernels, monkeypatch):
    def ask(*isa, types=("Q4_K", "F32"), setting="speed"):
        return SrhpmBackend().kernels(types, setting, isa)

    base = ("avx2", "fma", "f16c")
    assert ask(*base).isa == "avx2"
    assert ask(*base, "avx_vnni").isa == "avxvnni"
    assert "no kernels for this processor" in ask("avx2").why
    assert ask(*base, types=("F16", "F32")).isa == "avx2"
    assert ask(*base, types=("F32",)).isa == "avx2"
    assert "no kernels for IQ1_S weights" in ask(*base, types=("IQ1_S", "F32")).why
    assert ask(*base, setting="off").isa is None
    monkeypatch.setenv("SRHPM_ISA", "portable")
    assert ask("avx2").isa == "portable"
    monkeypatch.setenv("SRHPM_ISA", "mmx")
    assert ask(*base).isa is None
    assert "mmx" in ask(*base).why


def test_kernels_on_arm(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    answer = SrhpmBackend().kernels(("Q4_K",), "speed", ("neon", "fp16", "dotprod"))
    assert (answer.isa, answer.why) == ("neon", "neon kernels")
    old = SrhpmBackend().kernels(("Q4_K",), "speed", ("neon",))
    assert "no kernels for this processor" in old.why


def test_varying_types_by_processor():
    types = ("Q4_0", "Q4_K", "Q6_K", "Q8_0", "F32")
    assert varying_types(types, "AMD64", ("avx2",)) == ("Q4_K",)
    assert varying_types(types, "x86_64", ("avx2", "amx_int8")) == ("Q4_0", "Q4_K", "Q6_K", "Q8_0")
    assert varying_types(types, "aarch64", ("dotprod",)) == ("Q4_0", "Q4_K", "Q6_K", "Q8_0")
    assert varying_types(("q4_k",), "x86_64", ()) == ("Q4_K",)
    assert varying_types(("F32", "IQ3_S"), "aarch64", ()) == ()


WAITING = {"GOMP_SPINCOUNT": "1000"}


@pytest.mark.parametrize("name", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_how_threads_wait_is_the_users_to_say(make_plan, monkeypatch, name):
    monkeypatch.setenv(name, "passive")
    assert not WAITING.keys() & SrhpmBackend().command(make_plan()).env.keys()


def test_environment_of_ours(make_plan, drafts):
    env = SrhpmBackend().command(make_plan(draft=drafts["draft-simple"], parallel=2)).env
    several = {"SRHPM_EXACT": "16", "SRHPM_PASS_TOKENS": "8"}
    assert env == {**several, "SRHPM_DRAFT_N_MIN": "3", **WAITING}
    env = SrhpmBackend().command(make_plan(draft=drafts["ngram"], relax=0.25)).env
    assert env == {"SRHPM_EXACT": "8", "SRHPM_RELAX": "0.25", **WAITING}
    # a GPU's passes have room for all
    whole = make_plan(draft=drafts["draft-simple"], parallel=2, kind="all-gpu")
    assert "SRHPM_PASS_TOKENS" not in SrhpmBackend().command(whole).env


def test_plain_and_speculative_use_the_same_width(make_plan, drafts):
    widths = {exact_columns(make_plan(draft=draft)) for draft in drafts.values()}
    assert widths == {8}
    assert exact_columns(make_plan(draft=Draft("ngram", None, 0, 15, 0.0), parallel=2)) == 32


def test_inherited_options_do_not_leak_in(make_plan, drafts, monkeypatch):
    monkeypatch.setenv("SRHPM_RELAX", "2")
    monkeypatch.setenv("SRHPM_DRAFT_N_MIN", "5")
    monkeypatch.setenv("SRHPM_KERNELS", "off")
    assert SrhpmBackend().command(make_plan(draft=drafts["ngram"])).env == {
        "SRHPM_EXACT": "8",
        "SRHPM_DRAFT_N_MIN": "0",
        "SRHPM_RELAX": "0",
        "SRHPM_KERNELS": "speed",
        **WAITING,
    }


def test_stock_has_everything_of_ours_off(make_plan, drafts):
    command = StockBackend().command(make_plan(draft=drafts["draft-simple"]))
    assert command.env == OFF
    assert (OFF["SRHPM_KERNELS"], OFF["SRHPM_EXACT"]) == ("off", "0")
    assert not any("srhpm" in word for word in command.argv[1:])


def test_stock_refuses_relax(make_plan):
    with pytest.raises(UserError, match="--relax needs the patched server"):
        StockBackend().command(make_plan(relax=0.5))


@pytest.mark.usefixtures("x86")
def test_exactness_in_words(make_plan, drafts):
    ours = SrhpmBackend()
    plan = make_plan(("Q4_K", "Q2_K"), draft=drafts["draft-simple"])
    width, repack = ours.exactness(("Q4_K", "Q2_K"), plan)
    assert width.startswith("passes of up to 8 tokens")
    assert repack.startswith("Q2_K and Q4_K weights are not repacked")
    assert all(":" in line and "slower" in line for line in (width, repack))  # the cost
    assert len(ours.exactness(("Q4_0",), make_plan())) == 1
    assert ours.exactness(("Q4_0",), make_plan(gpu=True))[1].startswith("the GPU is left out")


@pytest.mark.usefixtures("kernels")
def test_exactness_with_kernels(make_plan):
    ours = SrhpmBackend()

    def say(types, **changes):
        return ours.exactness(types, make_plan(types, **changes))

    weights, attention = say(("Q4_K", "Q2_K", "F32"))
    assert "however many tokens" in weights
    assert attention.startswith("attention does so in passes of up to 8 tokens")
    assert "slower" in attention
    mixed = say(("Q4_K", "F16", "F32"))[1]
    assert mixed.startswith("attention and F16 weights do so in passes of up to 8 tokens")
    assert "wide passes are slower" not in mixed, "those are upstream's"
    (only,) = say(("BF16", "F32"))
    assert only.startswith("attention and BF16 weights give each token the result it has alone")
    (slow,) = (line for line in say(("Q4_K", "IQ1_S")) if "IQ1_S" in line)
    assert "wide passes are slower" in slow
    slots = say(("Q4_K",), parallel=2)[2]
    assert "attention may round otherwise" in slots
    assert say(("Q4_K",), kernels="off")[1].startswith("Q4_K weights are not repacked")
    # A router is F32 and a factor; norms are F32 and none.
    plan = make_plan(("Q4_K", "F32"))
    router = Tensor("blk.0.ffn_gate_inp.weight", (64, 8), "F32", 2048)
    model = dataclasses.replace(plan.model, tensors=(router,))
    routed = ours.exactness(("Q4_K", "F32"), dataclasses.replace(plan, model=model))
    assert routed[1].startswith("attention and F32 weights")


def test_no_promise_where_there_is_none(make_plan):
    assert SrhpmBackend().exactness(("Q4_0",), make_plan(relax=0.1)) == ()
    assert SrhpmBackend().exactness(("Q4_0",), make_plan(gpu=True, gpu_layers=1)) == ()
    assert StockBackend().exactness(("Q4_0",), make_plan()) == ()


def test_a_set_of_layers(make_plan, monkeypatch):
    """As many as -ngl counts, without which the server leaves the set alone."""
    name = "SRHPM_GPU_LAYERS"
    plan = make_plan(gpu=True, gpu_layers=2, layer_set=(0, -1, 0))
    command = SrhpmBackend().command(plan)
    assert command.env[name] == plan.layer_list == "0,out"
    assert options(command.argv)["--gpu-layers"] == "2"
    assert options(command.argv)["--fit"] == "off"
    assert "--device" not in command.argv
    assert name not in SrhpmBackend().command(make_plan(gpu=True, gpu_layers=2)).env
    monkeypatch.setenv(name, "1")
    assert SrhpmBackend().command(make_plan(gpu=True, gpu_layers=2)).env[name] == ""


def test_a_set_over_several_gpus(make_plan):
    memory = tuple(MemoryUse(name) for name in ("CPU", "CUDA0", "CUDA1"))
    plan = make_plan(gpu_layers=2, layer_set=(1, -1, 0))
    plan = dataclasses.replace(plan, memory=memory)
    command = SrhpmBackend().command(plan)
    assert command.env["SRHPM_GPU_LAYERS"] == "0@1,out"
    assert options(command.argv)["--device"] == "CUDA0,CUDA1"


def test_sets_need_the_hook(tmp_path, monkeypatch):
    server = tmp_path / "bin" / "llama-server"
    server.parent.mkdir()
    server.touch()
    backend = SrhpmBackend()
    monkeypatch.setattr(SrhpmBackend, "server", lambda self: server)
    assert not backend.layer_sets()
    for applied in (False, True):
        said = {"hooks": [{"name": "layers", "file": "x", "applied": applied}]}
        (tmp_path / "srhpm-native.json").write_text(json.dumps(said))
        assert backend.layer_sets() is applied
    monkeypatch.setattr(SrhpmBackend, "server", lambda self: None)
    assert not backend.layer_sets()
