"""What to fill in where a client keeps its address in a form or a database of its own.

Each sentence says where to click; ``{url}`` and ``{v1}`` are Ollama's and OpenAI's address.
"""

from __future__ import annotations

OPEN_WEBUI = (
    "In Open WebUI: Admin Panel > Settings > Connections: add {v1} with the key any below OpenAI "
    "API, and switch Ollama API off (through it models that know no tools are refused).",
    "Or before its first start: ENABLE_OLLAMA_API=False OPENAI_API_BASE_URL={v1} "
    "OPENAI_API_KEY=any open-webui serve",
)
ANYTHINGLLM = (
    "In AnythingLLM: Settings > AI Providers > LLM > Ollama, Base URL {url}, then choose a model.",
    "In Docker, with host.docker.internal in place of 127.0.0.1: LLM_PROVIDER=ollama and "
    "OLLAMA_BASE_PATH={url} in its .env.",
)
HOME_ASSISTANT = (
    "In Home Assistant: Settings > Devices & services > Add integration > Ollama, URL {url}.",
    "From another machine: type here srhpm-plugin serve --host 0.0.0.0 --api-key KEY, and enter "
    "this machine's address and KEY there.",
)
OPENAI = (
    "For programs that use OpenAI's packages: OPENAI_BASE_URL={v1} and OPENAI_API_KEY=any, or in "
    'Python OpenAI(base_url="{v1}", api_key="any").',
)
CONTINUE = (
    "In Continue's config.yaml, below models: name: SR-HPM, provider: ollama, model: AUTODETECT, "
    "apiBase: {url}",
)
ZED = ('In Zed\'s settings.json: "language_models": {{"ollama": {{"api_url": "{url}"}}}}',)
VSCODE = (
    "In VS Code: the chat's model picker > Manage Language Models > Add Models > Ollama, "
    "URL {url}.",
)
JAN = (
    "In Jan: Settings > Model Providers > Add Provider (OpenAI compatible), base URL {v1}, "
    "any key.",
)


def filled(sentences: tuple[str, ...], url: str) -> tuple[str, ...]:
    """With the address."""
    return tuple(sentence.format(url=url, v1=f"{url}/v1") for sentence in sentences)
