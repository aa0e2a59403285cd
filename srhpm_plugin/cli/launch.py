"""``srhpm-plugin launch``."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack, suppress
from typing import Any

import click
import httpx

from ..backend import Command
from ..launch import exec_server, ports, serve
from ..launch.client import Client
from ..launch.prepare import ignored_variables
from ..launch.server import Server
from ..plan import LaunchPlan
from ..plugins import plugins
from ._bar import Bar
from ._running import (
    backend_option,
    command_of,
    make_plan,
    make_request,
    plan_options,
    ready_path,
    warn,
)

# The server counts tokens, not requests; each leaves one such line in its log.
_REQUEST_LINE = re.compile(r"prompt eval time =")
# For the summary. With a key, the counters need it too.
_METRICS = {"LLAMA_ARG_ENDPOINT_METRICS": "1"}
# The summary of a server that never was ready.
_NOTHING_DONE = {
    "requests": 0,
    "tokens": 0,
    "tok_s": None,
    "drafted": 0,
    "accepted": 0,
    "acceptance": None,
}


@click.command("launch")
@plan_options
@backend_option
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8080,
    show_default=True,
    help="Port to listen on.",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address; needs --api-key if not local."
)
@click.option(
    "--api-key", envvar="SRHPM_API_KEY", help="What clients must send.  [env: SRHPM_API_KEY]"
)
@click.option("--run", is_flag=True, help="Start the server and stay until Ctrl-C.")
@click.option(
    "--exec", "become", is_flag=True, help="With --run: become the server, for service managers."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with --run one line per event.")
@click.option("--dry-run", is_flag=True, help="Print the plan even with --run, start nothing.")
def command(
    *,
    port: int,
    host: str,
    api_key: str | None,
    run: bool,
    become: bool,
    as_json: bool,
    dry_run: bool,
    **planned: Any,
) -> None:
    """Prints the launch plan of MODEL; with --run starts an OpenAI-compatible server on it."""
    if become and not run:
        raise click.UsageError("--exec needs --run")
    ports.check_exposure(host, api_key)
    start = run and not dry_run
    request = make_request(**planned)
    backend = plugins().backend(request.backend)
    built = backend.server() is not None
    plan = make_plan(request, command=built or start)
    if start:
        # Before it is printed: nobody reads a screenful to learn at its end that the port is taken.
        ports.require_free(host, port)
    warn(plan)
    url = ports.base_url(host, port)
    if not as_json:
        from .plan import print_plan

        print_plan(plan)
    elif not start:
        click.echo(json.dumps({**plan.to_json(), "url": url}, indent=2))
    if not start:
        if not as_json:
            do = "add --run to start it" if built else f"first type: {backend.missing()}"
            click.echo(f"\nNothing was started; {do}")
        return
    for name in ignored_variables():
        click.echo(f"note: {name} from the environment is left out, the plan decides", err=True)
    planned_command = command_of(plan)
    if become:
        exec_server(planned_command, host=host, port=port, api_key=api_key)
    measured = Command(planned_command.argv, {**_METRICS, **planned_command.env})
    _Run(plan, as_json=as_json).serve(measured, host=host, port=port, api_key=api_key)


class _Run:
    """A server in the foreground."""

    def __init__(self, plan: LaunchPlan, *, as_json: bool) -> None:
        self.plan = plan
        self.as_json = as_json
        self.requests = 0

    def see(self, line: str) -> None:
        """Counts requests in the log."""
        self.requests += bool(_REQUEST_LINE.search(line))

    def serve(self, command: Command, *, host: str, port: int, api_key: str | None) -> None:
        """Until Ctrl-C, a signal, or the server's end."""
        from ..planner.hosted import title

        name = title(self.plan.model)
        with ExitStack() as stack:
            try:
                with Bar(show=not self.as_json) as bar:
                    server = stack.enter_context(
                        serve(
                            command,
                            ready_path=ready_path(self.plan),
                            host=host,
                            port=port,
                            api_key=api_key,
                            on_progress=lambda progress: bar.loading(name, progress),
                            on_line=self.see,
                        )
                    )
            except KeyboardInterrupt:
                # The server is gone by now: `serve` ends it before it passes the interrupt on.
                self.stopped_loading()
                return
            self.stay(server, host)

    def stopped_loading(self) -> None:
        """Ctrl-C before it was ready ends as Ctrl-C afterwards does."""
        if self.as_json:
            click.echo(json.dumps({"event": "stopped", "phase": "loading", **_NOTHING_DONE}))
        else:
            click.echo("\nStopped while loading.")

    def stay(self, server: Server, host: str) -> None:
        """Waits; the short waits let Windows notice Ctrl-C."""
        try:
            self.announce(server)
            if not (self.as_json or ports.is_loopback(host)):
                click.echo(
                    f"\nIt listens on {host}: other machines that have the key reach it too."
                )
            while server.wait(0.5) is None:
                pass
        except KeyboardInterrupt:
            pass
        finally:
            self.summarize(server)
        server.check()

    def announce(self, server: Server) -> None:
        """Where it is and how to use it."""
        url = server.base_url
        if self.as_json:
            ready = {"event": "ready", "url": url, "pid": server.pid, "log": str(server.log)}
            click.echo(json.dumps({**ready, "plan": self.plan.to_json()}))
            return
        # the snippets name the variable, so that no key stands in a shell's history
        header = ' -H "Authorization: Bearer $SRHPM_API_KEY"' if server.api_key else ""
        key = 'os.environ["SRHPM_API_KEY"]' if server.api_key else '"none"'
        click.echo(
            f"\nReady at {url} (OpenAI API at {url}/v1), log in {server.log}\n\n"
            f"  curl {url}/v1/chat/completions -H 'Content-Type: application/json'{header} \\\n"
            f'    -d \'{{"messages": [{{"role": "user", "content": "Hello"}}]}}\'\n\n'
            f'  OpenAI(base_url="{url}/v1", api_key={key}).chat.completions.create(\n'
            f'      model="any", messages=[{{"role": "user", "content": "Hello"}}])\n\n'
            "Ctrl-C stops it."
        )

    def summarize(self, server: Server) -> None:
        """What it did, from its own counters; silent about what it does not tell."""
        counters: dict[str, float] = {}
        if server.returncode is None:
            with (
                suppress(httpx.HTTPError, KeyboardInterrupt),
                Client(server.base_url, server.api_key, timeout=2.0) as client,
            ):
                counters = client.metrics()
        tokens = counters.get("tokens_predicted_total")
        seconds = counters.get("tokens_predicted_seconds_total")
        drafted = counters.get("spec_decode_num_draft_tokens_total")
        accepted = counters.get("spec_decode_num_accepted_tokens_total")
        summary = {
            "requests": self.requests or (0 if not tokens else None),
            "tokens": None if tokens is None else int(tokens),
            "tok_s": tokens / seconds if tokens and seconds else None,
            "drafted": None if drafted is None else int(drafted),
            "accepted": None if accepted is None else int(accepted),
            "acceptance": accepted / drafted if drafted and accepted is not None else None,
        }
        if self.as_json:
            click.echo(json.dumps({"event": "stopped", "phase": "serving", **summary}))
            return
        parts = []
        if summary["requests"] is not None:
            count = summary["requests"]
            parts.append(f"{count} request{'s' * (count != 1)}")
        if summary["tokens"]:
            parts.append(f"{summary['tokens']} tokens")
        if summary["tok_s"]:
            parts.append(f"{summary['tok_s']:.1f} tok/s")
        if summary["acceptance"] is not None:
            parts.append(
                f"{accepted:.0f} of {drafted:.0f} drafted tokens accepted"
                f" ({summary['acceptance']:.0%})"
            )
        elif summary["tokens"]:
            parts.append("nothing drafted")
        click.echo("\nStopped. " + ", ".join(parts))
