"""The argument lists of all hosts, as facts about them say they are passed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.dropin.arguments import Arguments, full_context, parse, to_request
from srhpm_plugin.dropin.flags import FlagTable
from srhpm_plugin.dropin.handover import NotOurs


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file of a model's name; what is in it is not looked at here."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    path = tmp_path / "drafter.gguf"
    path.write_bytes(b"GGUF")
    return path


def filled(text: str, model: Path, drafter: Path) -> list[str]:
    words = {"MODEL": str(model), "DRAFTER": str(drafter), "MMPROJ": str(drafter)}
    return [words.get(word, word) for word in text.split()]


OLLAMA = (
    "--model MODEL --port 49500 --host 127.0.0.1 --no-webui --offline -c 16384 -np 4 "
    "--log-verbosity 4 --no-log-prefix --no-log-timestamps "
)
LM_STUDIO = (
    "--model MODEL --host 127.0.0.1 --port 41343 --api-key K --verbosity 3 --no-webui --jinja "
    "--ctx-size 8192 --n-gpu-layers 0 --n-cpu-moe 0 --main-gpu 0 --tensor-split 1,0 "
    "--split-mode layer --ctx-checkpoints 32 --batch-size 512 --ubatch-size 512 --threads 6 "
    "--parallel 4 --cache-type-k q8_0 --cache-type-v q8_0 --flash-attn on --kv-offload "
    "--kv-unified --load-mode mmap+mlock "
)
JAN = (
    "--no-webui --jinja -m MODEL -a some-model --port 3000 -ngl 100 --threads 4 --batch-size 2048 "
    "--ubatch-size 512 --device none --split-mode layer --main-gpu 0 --flash-attn auto "
    "--context-shift --cont-batching --no-mmap --mlock --no-kv-offload --parallel 1 -kvu "
    "--ctx-size 8192 --n-predict -1 --cache-type-k f16 --cache-type-v f16 --defrag-thold 0.1 "
    "--rope-scaling none --fit on --fit-ctx 4096 --fit-target 1024"
)
TEXT_GENERATION_WEBUI = (
    "--model MODEL --batch-size 1024 --ubatch-size 1024 --port 5005 --no-webui --flash-attn on "
    "--ctx-size 8192 --gpu-layers 0 --fit off --threads 4 --no-mmap --mlock "
    "--cache-type-k fp16 --model-draft DRAFTER --draft-max 4 --gpu-layers-draft 0 "
    "--ctx-size-draft 2048 --spec-type draft-simple --draft-min 1 --parallel 1 --cache-reuse 1 "
    "--swa-full"
)
DOCKER = (
    "-ngl 999 --metrics --no-mmap --threads 4 --model MODEL --host /tmp/inference.sock "
    "--ctx-size 4096 --mmproj MMPROJ --jinja"
)
LISTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ollama": (
        OLLAMA + "--flash-attn auto",
        {"ctx": 4096, "parallel": 4, "gpu_layers": None, "draft": "auto", "threads": None},
    ),
    "ollama, everything": (
        OLLAMA + "--no-jinja --chat-template chatml --image-min-tokens 1024 --load-mode none "
        "--cache-type-k q8_0 --cache-type-v q8_0 --flash-attn on -b 512 -ub 512 -ngl 0 -t 3 "
        "--split-mode none --main-gpu 0 --context-shift --keep 4",
        {
            "ctx": 4096,
            "parallel": 4,
            "gpu_layers": 0,
            "threads": 3,
            "cache_type_k": "q8_0",
            "cache_type_v": "q8_0",
        },
    ),
    "ollama, a drafter of its own": (
        OLLAMA + "--spec-type draft-mtp --spec-draft-n-max 4 --spec-draft-backend-sampling "
        "--spec-draft-model DRAFTER --flash-attn on",
        {"draft": "none"},
    ),
    "ollama, the model's own head": (
        OLLAMA + "--spec-type draft-mtp --spec-draft-n-max 4 --no-spec-draft-backend-sampling "
        "--flash-attn on",
        {"draft": "auto"},
    ),
    "ollama, dflash": (
        OLLAMA + "--spec-type draft-dflash --spec-draft-n-max 7 --spec-draft-model DRAFTER",
        {"draft": "none"},
    ),
    "lm studio": (
        LM_STUDIO,
        {
            "ctx": 2048,
            "parallel": 4,
            "gpu_layers": 0,
            "threads": 6,
            "cache_type_k": "q8_0",
            "draft": "auto",
        },
    ),
    "lm studio, draft-simple": (
        LM_STUDIO + "--spec-type draft-simple --spec-draft-n-max 16 --spec-draft-n-min 0 "
        "--spec-draft-p-min 0.75 --spec-draft-model DRAFTER",
        {"draft": "DRAFTER"},
    ),
    "lm studio, older": (
        "--model MODEL --host 127.0.0.1 --port 1 --log-disable --no-webui --ctx-size 4096",
        {"ctx": 4096, "parallel": 1},
    ),
    "jan": (JAN, {"ctx": 8192, "gpu_layers": 0, "threads": 4, "cache_type_k": "f16"}),
    "text-generation-webui": (
        TEXT_GENERATION_WEBUI.replace("fp16", "f16"),
        {"ctx": 8192, "gpu_layers": 0, "threads": 4, "draft": "DRAFTER"},
    ),
    "docker model runner": (
        DOCKER,
        {"ctx": 4096, "gpu_layers": 999, "threads": 4, "mmproj": "MMPROJ"},
    ),
    "lemonade": (
        "-m MODEL --ctx-size 4096 --port 8001 --jinja --metrics --mmproj MMPROJ "
        "--no-mmproj-offload --model-draft DRAFTER",
        {"ctx": 4096, "mmproj": "MMPROJ", "draft": "DRAFTER"},
    ),
    "lemonade, a head of the model's own": (
        "-m MODEL --ctx-size 4096 --port 8001 --jinja --metrics --context-shift --keep 16 "
        "--reasoning-format auto --spec-type draft-mtp --spec-draft-n-max 3 "
        "--spec-draft-p-min 0.75 --no-ui --load-mode none",
        {"ctx": 4096, "parallel": 1, "draft": "auto"},
    ),
    "llama-swap": ("--port 5800 -m MODEL -c 0 -fa on", {"ctx": None}),
    "unsloth studio": (
        "-m MODEL --port 8123 --parallel 4 --flash-attn on --no-context-shift -c 4096 "
        "--batch-size 2048 --ubatch-size 512 --ctx-checkpoints 8 --cache-ram 2048 "
        "--alias unsloth/some-GGUF --fit on --metrics --slot-save-path /tmp/slots --kv-unified "
        "--fit-ctx 4096 --fit-target 512 --threads 2 --jinja --cache-type-k q8_0 "
        "--cache-type-v q8_0 --spec-default --chat-template-file /tmp/a.jinja --mmproj MMPROJ",
        {"ctx": 1024, "parallel": 4, "gpu_layers": None, "threads": 2, "mmproj": "MMPROJ"},
    ),
    "unsloth studio, on a GPU": (
        "-m MODEL --port 8123 --parallel 1 --flash-attn on --no-context-shift -c 0 -ngl -1 "
        "--fit off --metrics --jinja --model-draft DRAFTER --spec-type draft-dspark "
        "--spec-draft-n-max 3",
        {"ctx": None, "gpu_layers": None, "draft": "none"},
    ),
    "ramalama": (
        "--host 0.0.0.0 --port 8080 --model MODEL --mmproj MMPROJ --no-warmup --reasoning off "
        "--alias library/smollm --ctx-size 2048 --temp 0.8 --cache-reuse 256 --no-webui "
        "--threads 2 --seed 3 --log-colors on -v -ngl 0",
        {"ctx": 2048, "threads": 2, "mmproj": "MMPROJ"},
    ),
    "a router's child": (
        "--host 127.0.0.1 --port 51234 --alias tiny --model MODEL --ctx-size 4096 --n-gpu-layers "
        "all",
        {"ctx": 4096, "gpu_layers": 1 << 16},
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_every_host(name: str, table: FlagTable, model: Path, drafter: Path) -> None:
    text, wanted = LISTS[name]
    arguments = parse(filled(text, model, drafter), {}, table)
    request = to_request(arguments, {})
    assert request.model == model
    for field, value in wanted.items():
        expected = str(drafter) if value in ("DRAFTER", "MMPROJ") else value
        found = getattr(request, field)
        assert (str(found) if isinstance(found, Path) else found) == expected, field


@pytest.mark.parametrize("name", LISTS)
def test_what_is_passed_on_is_known_to_the_server(
    name: str, table: FlagTable, model: Path, drafter: Path, spelled: Callable[..., list[str]]
) -> None:
    argv = filled(LISTS[name][0], model, drafter)
    arguments = parse(argv, {}, table)
    passed = spelled([word for item in arguments.items for word in item.words], argv)
    assert parse(passed, {}, table).notes == ()
    # nothing that was said is lost but what this server has no option for
    lost = [note for note in arguments.notes if "left out" in note]
    assert len(lost) <= 1


def read(text: str, table: FlagTable, model: Path, **env: str) -> Arguments:
    return parse([str(model) if word == "MODEL" else word for word in text.split()], env, table)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--draft-max 8", "--spec-draft-n-max 8"),
        ("--draft 8", "--spec-draft-n-max 8"),
        ("--draft-min 2", "--spec-draft-n-min 2"),
        ("--spec-type ngram-mod --draft-max 8", "--spec-type ngram-mod --spec-ngram-mod-n-max 8"),
        (
            "--spec-type ngram-simple --spec-ngram-size-n 4 --spec-ngram-size-m 9",
            "--spec-type ngram-simple --spec-ngram-simple-size-n 4 --spec-ngram-simple-size-m 9",
        ),
        ("--draft_max 8", "--spec-draft-n-max 8"),
        ("--ctx_size 8", "--ctx_size 8"),
        ("--ctx-size=8", "--ctx-size 8"),
        ("--override-kv=a=int:1", "--override-kv a=int:1"),
        ("--ctx-size-draft 512", ""),
        ("-fa", "-fa on"),
        ("-fa --jinja", "-fa on --jinja"),
        ("--flash-attn off", "--flash-attn off"),
        ("--keep -1", "--keep -1"),
        ("--lora a --lora b", "--lora a --lora b"),
        ("--control-vector-layer-range 1 -2", "--control-vector-layer-range 1 -2"),
    ],
)
def test_spellings(old: str, new: str, table: FlagTable, spelled: Callable[..., list[str]]) -> None:
    arguments = parse(old.split(), {}, table)
    words = [word for item in arguments.items for word in item.words]
    assert spelled(words, old.split()) == new.split()


@pytest.mark.parametrize(
    ("switches", "mode"),
    [
        ("--no-mmap", "none"),
        ("--mlock", "mmap+mlock"),
        ("--no-mmap --mlock", "mlock"),
        ("--mmap", "mmap"),
        ("--direct-io", "dio"),
        ("--no-direct-io", "auto"),
    ],
)
def test_switches_of_loading(
    switches: str, mode: str, table: FlagTable, spelled: Callable[..., list[str]]
) -> None:
    old = [*switches.split(), "--port", "1"]
    if table.knows("--mlock"):
        pytest.fail("this tag knows the old switches: test them as they are")
    arguments = parse(old, {}, table)
    words = spelled([word for item in arguments.items for word in item.words], old)
    assert words == ["--load-mode", mode, "--port", "1"]
    # the host's own word for it wins
    both = parse([*old, "--load-mode", "dio"], {}, table)
    assert both.last("-lm") == "dio"
    assert len([i for i in both.items if i.name == "-lm"]) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("--model MODEL --new-flag 3", "does not know --new-flag"),
        ("--model MODEL --top_k_extra=3", "does not know --top-k-extra"),
        ("--model MODEL stray", "does not know an argument"),
        ("--model MODEL --port", "--port has no value"),
        ("--model MODEL --jinja=yes", "takes no value"),
        ("--model MODEL -c many", "-c is no number"),
        ("--model MODEL --embedding", "embeddings"),
        ("--model MODEL --embeddings --pooling mean", "embeddings"),
        ("--model MODEL --reranking", "ranks"),
        ("--model gone.gguf", "not there"),
        ("--model MODEL --mmproj MODEL", "one file"),
        ("--model MODEL -hf a/b", "to download"),
        ("--model MODEL --gpt-oss-20b-default", "to download"),
    ],
)
def test_handed_over(text: str, why: str, table: FlagTable, model: Path) -> None:
    with pytest.raises(NotOurs, match=why):
        to_request(read(text, table, model), {})


def test_a_secret_is_in_no_message(table: FlagTable, model: Path) -> None:
    with pytest.raises(NotOurs) as caught:
        read("--model MODEL --api-key a hunter2", table, model)
    assert "hunter2" not in str(caught.value)


def test_variables_are_read_as_arguments_and_give_way_to_them(
    table: FlagTable, model: Path
) -> None:
    env = {"LLAMA_ARG_CTX_SIZE": "4096", "LLAMA_ARG_THREADS": "3", "LLAMA_ARG_MODEL": str(model)}
    request = to_request(parse(["-c", "2048"], env, table), env)
    assert (request.ctx, request.threads, request.model) == (2048, 3, model)


def test_variables_that_end_this_server_become_arguments(
    table: FlagTable, spelled: Callable[..., list[str]]
) -> None:
    arguments = parse([], {"LLAMA_ARG_DRAFT_MAX": "5", "LLAMA_ARG_DRAFT_MIN": ""}, table)
    assert set(arguments.unset) == {"LLAMA_ARG_DRAFT_MAX", "LLAMA_ARG_DRAFT_MIN"}
    words = [word for item in arguments.items for word in item.words]
    assert spelled(words, []) == ["--spec-draft-n-max", "5"]


@pytest.mark.parametrize(
    ("text", "draft"),
    [
        ("--spec-type none", "none"),
        ("--spec-type none --spec-draft-model X", "none"),
        ("--spec-type ngram-mod", "none"),
        ("--spec-type draft-eagle3 --spec-draft-model X", "none"),
        ("--spec-draft-hf a/b", "none"),
        ("-md X", "X"),
        ("--spec-type draft-simple -md X", "X"),
        ("--spec-type draft-mtp", "auto"),
        ("", "ngram"),
    ],
)
def test_drafters(text: str, draft: str, table: FlagTable, model: Path) -> None:
    arguments = read("--model MODEL " + text, table, model)
    assert to_request(arguments, {"SRHPM_DRAFT": "ngram"}).draft == draft


def test_the_longest_context(table: FlagTable, model: Path) -> None:
    assert full_context(read("--model MODEL -c 0", table, model))
    assert not full_context(read("--model MODEL", table, model))


def test_flags_of_the_help_text(table: FlagTable) -> None:
    assert table.by_name["--no-webui"].values == 0
    assert table.by_name["--n-gpu-layers"].names[0] == "-ngl"
    assert table.by_name["--control-vector-layer-range"].values == 2
    assert table.by_env["LLAMA_ARG_CTX_SIZE"].names[0] == "-c"
    assert not table.knows("--draft-max")
    assert not table.knows("--no-such-flag")
    assert all(flag.values == 0 for flag in table.by_name.values() if "--jinja" in flag.names)
