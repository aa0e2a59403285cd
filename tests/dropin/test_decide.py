"""Decisions: the plan's arguments and the host's as one command line, and every reason for which
the host's own server runs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.hookspecs import hookimpl
from srhpm_plugin.host import HandOver, HostCall, HostModel, Installation, Translated
from srhpm_plugin.plan import HostRequest, Predicted
from srhpm_plugin.planner import make_plan
from srhpm_plugin.planner.measured import plan_key
from srhpm_plugin.plugins import plugins

Decide = Callable[..., Any]


@pytest.fixture(autouse=True)
def _kernels_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is expected of a plan must not depend on the processor that runs the tests."""
    monkeypatch.setattr("srhpm_plugin.dropin.decide._packed", lambda plan: plan.kernels != "off")


@pytest.fixture
def register() -> Iterator[Callable[[object], None]]:
    """``register(plugin)``: a plugin for this test."""
    manager = plugins().manager
    added: list[object] = []

    def add(plugin: object) -> None:
        manager.register(plugin)
        added.append(plugin)

    yield add
    for plugin in added:
        manager.unregister(plugin)


class Host:
    """A host that translates as it is told."""

    name = "toy"
    title = "Toy"

    def __init__(
        self, translate: Callable[[HostCall, HostRequest], Any], listed: Sequence[HostModel] = ()
    ) -> None:
        self._translate = translate
        self._listed = listed

    def find(self, path: Path | None) -> Iterator[Installation]:
        yield Installation(self.name, Path("/toy"), None, True, "")

    def models(self, found: Installation) -> Sequence[HostModel]:
        return self._listed

    def translate(self, call: HostCall, request: HostRequest) -> Any:
        return self._translate(call, request)


@pytest.fixture
def host(register: Callable[[object], None]) -> Callable[..., None]:
    """``host(function)``: ``function`` translates the calls of the host ``toy``, which lists
    ``listed`` as its models."""

    def make(
        function: Callable[[HostCall, HostRequest], Any], listed: Sequence[HostModel] = ()
    ) -> None:
        class Plugin:
            @hookimpl
            def srhpm_hosts(self) -> list[Any]:
                return [Host(function, listed)]

        register(Plugin())

    return make


@pytest.fixture
def coarse(smollm2: Path, server_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model and nothing beside it that could draft."""
    folder = tmp_path_factory.mktemp("alone")
    path = folder / "model.gguf"
    os.link(smollm2, path) if smollm2.stat().st_dev == folder.stat().st_dev else shutil.copy(
        smollm2, path
    )
    return path


def test_the_name_that_the_host_lists(
    decided: Decide, coarse: Path, host: Callable[..., None]
) -> None:
    """Where the arguments tell only the file; several names may share it."""
    listed = [
        HostModel("other", coarse.with_name("other.gguf")),
        HostModel("short", coarse, ctx=512),
        HostModel("long", coarse, ctx=1024),
        HostModel("long-srhpm", coarse, ctx=1024, twin=True),
    ]
    host(lambda call, request: Translated(request, request.model.name), listed)
    assert decided("-m", coarse, "-c", "512", host="toy").record["model"] == "short"
    assert decided("-m", coarse, "-c", "1024", host="toy").record["model"] == "long"
    assert decided("-m", coarse, "-c", "8192", host="toy").record["model"] == "short"
    named = decided("-m", coarse, "-c", "512", "--alias", "mine", host="toy")
    assert named.record["model"] == "mine"


def test_a_twin_by_the_name_that_the_host_lists(
    decided: Decide, coarse: Path, host: Callable[..., None]
) -> None:
    listed = [HostModel("base", coarse), HostModel("base-srhpm", coarse, twin=True)]
    host(lambda call, request: Translated(request, request.model.name, picked=True), listed)
    assert decided("-m", coarse, host="toy", mode="select").record["model"] == "base-srhpm"


@pytest.mark.parametrize("listed", [None, [HostModel("other", Path("/nowhere"))]])
def test_a_host_that_lists_no_name(
    decided: Decide, coarse: Path, host: Callable[..., None], listed: Any
) -> None:
    host(lambda call, request: Translated(request, request.model.name), listed)
    asked = ("-m", coarse, "--spec-type", "none")
    assert decided(*asked, host="toy").record["model"] == "model.gguf"


def test_a_plain_start(decided: Decide, coarse: Path, real_server: Path) -> None:
    args = ["--model", coarse, "--port", "5", "--host", "127.0.0.1", "--no-webui", "--offline"]
    made = decided(*args, "-c", "4096", "-np", "2", "--flash-attn", "auto")
    assert made.kind == "srhpm"
    assert made.program == real_server
    # what the host said is the end of the line, word for word
    said = [str(word) for word in (*args, "-c", "4096", "-np", "2", "--flash-attn", "auto")]
    assert made.argv[-len(said) :] == said
    # and is said once
    assert not {"--ctx-size", "--parallel", "--flash-attn"} & set(made.argv[: -len(said)])
    assert made.argv.count("--no-webui") == 1
    # what it left open comes from the plan
    assert made.value("--spec-type") == "ngram-simple"
    assert made.value("--threads") is not None
    assert made.env["SRHPM_EXACT"] == "16"


@pytest.mark.parametrize(
    ("said", "gone"),
    [
        (("-t", "1"), "--threads"),
        (("-tb", "1"), "--threads-batch"),
        (("-ctk", "q8_0"), "--cache-type-k"),
        (("--cache-type-v", "q8_0"), "--cache-type-v"),
        (("-ngl", "0"), "--gpu-layers"),
        (("--fit", "on"), "--fit"),
        (("-cram", "0"), "--cache-ram"),
        (("--swa-checkpoints", "1"), "--ctx-checkpoints"),
        (("--spec-type", "none"), "--spec-type"),
        (("--spec-type", "ngram-mod"), "--spec-ngram-simple-size-m"),
        (("-fa", "off"), "--flash-attn"),
    ],
)
def test_what_the_host_says_wins(
    said: tuple[str, ...], gone: str, decided: Decide, coarse: Path
) -> None:
    before = decided("-m", coarse, "-c", "2048")
    assert gone in before.argv, "the plan says it, or this test shows nothing"
    made = decided("-m", coarse, "-c", "2048", *said)
    assert made.argv[-len(said) :] == list(said)
    assert gone not in made.argv[: -len(said)]


@pytest.mark.parametrize(
    ("variable", "value", "gone"),
    [
        ("LLAMA_ARG_THREADS", "1", "--threads"),
        ("LLAMA_ARG_CTX_SIZE", "1024", "--ctx-size"),
        ("LLAMA_ARG_N_PARALLEL", "2", "--parallel"),
        ("LLAMA_ARG_CACHE_TYPE_K", "q8_0", "--cache-type-k"),
        ("LLAMA_ARG_FLASH_ATTN", "off", "--flash-attn"),
        ("LLAMA_ARG_SPEC_TYPE", "none", "--spec-type"),
        ("LLAMA_ARG_N_GPU_LAYERS", "0", "--gpu-layers"),
    ],
)
def test_so_do_its_variables(
    variable: str, value: str, gone: str, decided: Decide, coarse: Path
) -> None:
    made = decided("-m", coarse, env={variable: value})
    assert gone not in made.argv
    assert variable not in made.env


@pytest.mark.parametrize("said", [("-ngl", "-1"), ("-np", "-1"), ("-t", "-1"), ("-ngl", "auto")])
def test_a_choice_left_to_the_server_is_the_plans(
    said: tuple[str, str], decided: Decide, coarse: Path
) -> None:
    made = decided("-m", coarse, *said)
    assert said[0] not in made.argv
    assert {"--gpu-layers", "--parallel", "--threads"} <= set(made.argv)


def test_the_longest_context(decided: Decide, coarse: Path) -> None:
    made = decided("-m", coarse, "-c", "0", "-np", "4")
    assert made.kind == "srhpm"
    assert made.value("-c") == "0"
    assert "--ctx-size" not in made.argv


def test_variables_of_the_users_stay(decided: Decide, coarse: Path) -> None:
    env = {"SRHPM_EXACT": "3", "GOMP_SPINCOUNT": "7", "SRHPM_KERNELS": "speed"}
    made = decided("-m", coarse, env=env)
    assert not set(env) & set(made.env)


def test_a_draft_model_of_the_hosts(
    decided: Decide, coarse: Path, smollm2: Path, tmp_path: Path
) -> None:
    drafter = tmp_path / "drafter.gguf"
    shutil.copy(smollm2, drafter)
    made = decided("-m", coarse, "-md", drafter, "--spec-draft-n-max", "2")
    assert made.kind == "srhpm", made.reason
    assert made.value("--spec-type") == "draft-simple"
    assert made.argv.count("--spec-draft-model") == 0
    assert made.argv.count("--spec-draft-n-max") == 1
    assert made.value("--spec-draft-p-min") == "0.75"
    # never more always proposed than the host allows at all
    assert made.env["SRHPM_DRAFT_N_MIN"] == "2"
    # numbers of the host's own mean upstream's policy
    own = decided("-m", coarse, "-md", drafter, "--spec-draft-p-min", "0.5")
    assert "SRHPM_DRAFT_N_MIN" not in own.env
    assert own.value("--spec-draft-p-min") == "0.5"


def test_speculation_of_the_hosts_own_is_left_as_it_is(decided: Decide, coarse: Path) -> None:
    said = ["--spec-type", "ngram-mod", "--spec-ngram-mod-n-max", "30"]
    made = decided("-m", coarse, "-np", "1", *said)
    assert made.argv[-4:] == said
    assert not [word for word in made.argv[:-4] if word.startswith("--spec")]
    # exactness reaches as far as its drafts
    assert made.env["SRHPM_EXACT"] == "31"
    assert made.record["drafter"] == "the host's own"


def test_the_servers_own_default_drafts_far(decided: Decide, coarse: Path) -> None:
    made = decided("-m", coarse, "-np", "1", "--spec-default")
    assert made.env["SRHPM_EXACT"] == "65"
    assert made.record["drafter"] == "the host's own"


def test_an_mtp_head_that_we_do_not_see(decided: Decide, coarse: Path) -> None:
    said = ["--spec-type", "draft-mtp", "--spec-draft-n-max", "4"]
    made = decided("-m", coarse, *said)
    assert made.argv[-4:] == said
    assert not [word for word in made.argv[:-4] if word.startswith("--spec")]


def test_a_plugin_chooses_another_drafter(
    decided: Decide, coarse: Path, smollm2: Path, host: Callable[..., None], tmp_path: Path
) -> None:
    """As where a host cannot say what kind of drafter it has."""
    drafter = tmp_path / "drafter.gguf"
    shutil.copy(smollm2, drafter)

    def translate(call: HostCall, request: HostRequest) -> Translated:
        changed = HostRequest(**{**vars(request), "draft": str(drafter)})
        return Translated(changed, "toy:1b")

    host(translate)
    args = ["-m", coarse, "--spec-type", "draft-mtp", "--spec-draft-model", drafter]
    made = decided(*args, "--spec-draft-n-max", "4", host="toy")
    assert made.kind == "srhpm", made.reason
    assert made.record["model"] == "toy:1b"
    assert [made.argv[i + 1] for i, w in enumerate(made.argv) if w == "--spec-type"] == [
        "draft-simple"
    ]
    assert made.argv.count("--spec-draft-n-max") == 1
    # the same by variables, which add up with arguments
    env = {"LLAMA_ARG_SPEC_TYPE": "draft-mtp", "LLAMA_ARG_SPEC_DRAFT_MODEL": str(drafter)}
    made = decided("-m", coarse, env=env, host="toy")
    assert {name: made.env.get(name, "kept") for name in env} == dict.fromkeys(env)


def test_drafters_of_the_hosts_store_are_looked_at(
    decided: Decide, coarse: Path, host: Callable[..., None], tmp_path: Path
) -> None:
    """Wherever they lie, and a file that is none does no harm."""
    from srhpm_plugin.planner import make

    blob = tmp_path / "sha256-0"
    blob.write_bytes(b"GGUF")
    host(lambda call, request: Translated(request, "toy", drafters=(blob,)))
    seen: list[tuple[Path, ...]] = []
    plan = make.make_plan

    def watching(request: HostRequest, **more: Any) -> Any:
        seen.append(tuple(more["known"]))
        return plan(request, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("srhpm_plugin.dropin.decide.make_plan", watching)
        assert decided("-m", coarse, host="toy").kind == "srhpm"
    # alone at first, then with all others known
    assert seen[0] == (blob,)
    assert seen[1][0] == blob
    assert coarse in seen[1]


# --- handed over ---


def handed(made: Any, place: Any, *args: object) -> str:
    """Makes sure that the decision is the host's own server, untouched; returns the reason."""
    assert made.kind == "stock"
    assert made.program == place.original
    assert made.argv == [str(a) for a in args]
    assert made.env == {}
    return str(made.reason)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--brand-new-flag",), "--brand-new-flag"),
        (("--embedding",), "embeddings"),
        (("--mmproj", "MODEL"), "one file"),
        (("-c", "1000000000"), "out of range"),
        (("-ctk", "q5_k"), "KV cache"),
        (("--spec-draft-model", "gone.gguf"), "gone.gguf"),
    ],
)
def test_arguments_that_speak_against_us(
    more: tuple[str, ...], why: str, decided: Decide, coarse: Path, place: Any
) -> None:
    args = ["-m", coarse, *(coarse if word == "MODEL" else word for word in more)]
    assert why in handed(decided(*args), place, *args)


def test_a_damaged_model(damaged_gguf: tuple[Path, str], decided: Decide, place: Any) -> None:
    path, message = damaged_gguf
    assert message in handed(decided("-m", path), place, "-m", path)


def test_no_model_file(decided: Decide, place: Any, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone", Path("smollm2"), Path(os.devnull)):
        assert "not there" in handed(decided("-m", path), place, "-m", path)


def test_an_architecture_that_our_server_does_not_know(
    decided: Decide, coarse: Path, place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "srhpm_plugin.dropin.decide.build_info", lambda folder: {"architectures": ["gemma9"]}
    )
    assert "architecture llama" in handed(decided("-m", coarse), place, "-m", coarse)


def test_a_projector_inside_the_models_file(
    decided: Decide, coarse: Path, place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from srhpm_plugin.planner.headers import read_header

    model = read_header(coarse)
    vision = replace(model.tensors[0], name="v.patch_embd.weight")
    monkeypatch.setattr(
        "srhpm_plugin.dropin.decide.read_header",
        lambda path: replace(model, tensors=(*model.tensors, vision)),
    )
    assert "projector" in handed(decided("-m", coarse), place, "-m", coarse)


def test_no_server_of_ours(
    decided: Decide, coarse: Path, place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srhpm_plugin.native.locate.find_build", lambda: None)
    made = decided("-m", coarse, env={"SRHPM_SERVER": ""})
    assert "native build" in handed(made, place, "-m", coarse)


def test_a_server_that_does_not_start(
    decided: Decide, coarse: Path, place: Any, script: Callable[..., Path], tmp_path: Path
) -> None:
    broken = script(tmp_path / "broken" / "llama-server", "#!/bin/sh\nexit 127\n")
    made = decided("-m", coarse, env={"SRHPM_SERVER": str(broken)})
    assert "does not start" in handed(made, place, "-m", coarse)
    assert not made.lasting
    made = decided("-m", coarse, env={"SRHPM_SERVER": str(tmp_path / "gone")})
    assert "SRHPM_SERVER" in handed(made, place, "-m", coarse)


def test_too_little_memory(decided: Decide, coarse: Path, place: Any) -> None:
    args = ["-m", coarse, "-c", "8192", "-np", "255", "-ub", str(1 << 24)]
    made = decided(*args)
    reason = handed(made, place, *args)
    assert "memory" in reason or "fit" in reason
    assert not made.lasting, "with more memory it must be asked again"


def test_plugins_that_fail(
    decided: Decide, coarse: Path, place: Any, host: Callable[..., None]
) -> None:
    def fail(call: HostCall, request: HostRequest) -> Translated:
        raise failure

    host(fail)
    for failure in (RuntimeError("broken"), UserError("no manifest", "it is gone"), KeyError("x")):
        made = decided("-m", coarse, host="toy")
        assert str(failure.args[0]) in handed(made, place, "-m", coarse)
        assert not made.lasting


def test_a_planner_step_that_fails(
    decided: Decide, coarse: Path, place: Any, register: Callable[[object], None]
) -> None:
    class Plugin:
        @hookimpl
        def srhpm_plan_threads(self) -> tuple[int, str]:
            raise ZeroDivisionError("of the plugin's")

    register(Plugin())
    assert "of the plugin's" in handed(decided("-m", coarse), place, "-m", coarse)


def test_the_hosts_plugin_hands_over(
    decided: Decide, coarse: Path, place: Any, host: Callable[..., None]
) -> None:
    host(lambda call, request: HandOver("its tensors are renamed"))
    made = decided("-m", coarse, host="toy")
    assert handed(made, place, "-m", coarse) == "its tensors are renamed"


@pytest.mark.parametrize(("picked", "kind"), [(True, "srhpm"), (False, "stock")])
def test_mode_select(
    picked: bool, kind: str, decided: Decide, coarse: Path, host: Callable[..., None]
) -> None:
    host(lambda call, request: Translated(request, "toy", picked=picked))
    assert decided("-m", coarse, host="toy", mode="select").kind == kind


def test_without_a_gain_only_what_was_picked_runs(
    decided: Decide, coarse: Path, place: Any, host: Callable[..., None]
) -> None:
    env = {"SRHPM_KERNELS": "off"}
    host(lambda call, request: Translated(request, "toy", picked=picked))
    picked = False
    made = decided("-m", coarse, env=env, host="toy")
    assert "nothing speaks for a gain" in handed(made, place, "-m", coarse)
    picked = True
    assert decided("-m", coarse, env=env, host="toy").kind == "srhpm"


@pytest.mark.parametrize(
    ("ours", "basis", "kind"),
    [
        (9.0, "calibrated", "stock"),
        (9.6, "calibrated", "srhpm"),  # no further behind than a prediction may be wrong
        (11.0, "calibrated", "srhpm"),
        (9.0, "estimated", "srhpm"),  # nobody has checked the formula
        (9.0, "measured", "srhpm"),  # by a machine that may have been busy
    ],
)
def test_a_prediction_decides(
    ours: float,
    basis: Any,
    kind: str,
    decided: Decide,
    coarse: Path,
    register: Callable[[object], None],
) -> None:
    class Plugin:
        @hookimpl
        def srhpm_plan_predict(self) -> Predicted:
            return Predicted(tok_s=ours, stock_tok_s=10.0, basis=basis)

    register(Plugin())
    made = decided("-m", coarse)
    assert made.kind == kind
    assert (f"{ours:.1f} tok/s" in made.reason) == (basis == "calibrated")


def test_the_plan_that_is_measured(decided: Decide, coarse: Path, real_server: Path) -> None:
    """A start is a start of the plan that `plan` makes, whatever context and slots the host asks
    for; not where the host drafts by itself or says something else that the plan has."""
    asked = ["-m", coarse, "-c", "1024", "-np", "2", "--port", "7"]
    made = decided(*asked)
    plan = make_plan(HostRequest(coarse, draft="ngram"), command=False)
    assert made.record["plan"] == plan_key(plan) is not None
    more = str(plan.threads + 1)
    assert decided(*asked, "-t", more).record["plan"] not in (None, made.record["plan"])
    assert decided(*asked, "--spec-type", "ngram-mod").record["plan"] is None


def test_the_host_has_a_gpu_that_we_have_not(
    decided: Decide, coarse: Path, place: Any, script: Callable[..., Path]
) -> None:
    library = place.original.parent / "cuda_v13" / "libggml-cuda.so"
    library.parent.mkdir()
    library.touch()
    lists = 'print("Available devices:\\n  CUDA0: NVIDIA Card (24000 MiB, 23000 MiB free)")'
    script(place.original, f"#!/usr/bin/env python3\n{lists}\n")
    made = decided("-m", coarse)
    reason = handed(made, place, "-m", coarse)
    assert "NVIDIA Card" in reason
    assert "native build --match nobody" in reason
    # not where it is not to be used
    assert decided("-m", coarse, "-ngl", "0").kind == "srhpm"
    assert decided("-m", coarse, "--device", "none").kind == "srhpm"
    assert decided("-m", coarse, env={"CUDA_VISIBLE_DEVICES": "-1"}).kind == "srhpm"
    # nor where the library finds none
    script(place.original, "#!/usr/bin/env python3\nprint('Available devices:')\n")
    assert decided("-m", coarse).kind == "srhpm"


def test_no_host_server_and_no_plan(decided: Decide, coarse: Path, real_server: Path) -> None:
    """Ours runs with everything of ours off."""
    made = decided("-m", coarse, "--embedding", original=None)
    assert made.kind == "stock"
    assert made.program == real_server
    assert made.argv == ["-m", str(coarse), "--embedding"]
    assert made.env["SRHPM_KERNELS"] == "off"
    assert made.env["SRHPM_EXACT"] == "0"


def test_reasons_are_said_in_the_record(decided: Decide, coarse: Path) -> None:
    record = decided("-m", coarse, "--api-key", "hunter2").record
    assert record["host"] == "nobody"
    assert record["model"] == "model.gguf"
    assert record["path"] == str(coarse)
    assert record["needs"] > 0
    assert "a gain is expected of " in record["reason"]
    assert "not measured yet" in record["reason"]
    assert "hunter2" not in json.dumps(record)


def test_the_name_that_it_is_served_under(
    decided: Decide, coarse: Path, host: Callable[..., None]
) -> None:
    """Where the host's plugin knows none."""
    assert decided("-m", coarse, "--alias", "qwen,other").record["model"] == "qwen"
    assert decided("-m", coarse, "--alias=qwen", "--no-such-flag").record["model"] == "qwen"
    host(lambda call, request: Translated(request, request.model.name))
    assert decided("-m", coarse, "-a", "qwen", host="toy").record["model"] == "qwen"
    host(lambda call, request: Translated(request, "its own name"))
    assert decided("-m", coarse, "-a", "qwen", host="toy").record["model"] == "its own name"
