"""`truecut journal serve|coordinate|status`: the processes of a log on several nodes."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from truecut.cli.entry import give_back
from truecut.cli.journal_options import SecurityFiles, security_options
from truecut.cli.parameters import ADDRESS, DURATION
from truecut.cli.signals import stopped_by_signals
from truecut.errors import ExitCode

if TYPE_CHECKING:
    from truecut.journal.security import Security

_data = click.option(
    "--data", type=click.Path(path_type=Path, file_okay=False), required=True, help="Its folder."
)
_listen = click.option(
    "--listen", type=ADDRESS, required=True, metavar="HOST:PORT", help="Where; port 0 takes a free one."
)
_LOOK_S = 0.2
# What gRPC itself would print, of a port that is taken, say, stands in our own sentence.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


@click.command()
@_data
@_listen
@click.option("--coordinator", type=ADDRESS, required=True, metavar="HOST:PORT", help="The coordinator.")
@click.option("--advertise", type=ADDRESS, metavar="HOST:PORT", help="How others reach it [as --listen].")
@click.option(
    "--bulk-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="From where readers fetch much, unless TLS is used; 0 takes a free one.",
)
@security_options
def serve(
    data: Path, listen: str, coordinator: str, advertise: str | None, bulk_port: int, files: SecurityFiles
) -> None:
    """Run a log node: it keeps replicas of segments in its folder, and serves them."""
    from truecut.journal.replicated.node import Node
    from truecut.journal.replicated.node_server import Heartbeat, NodeServer
    from truecut.listen_address import Address

    security = _security(files, listen)
    node = Node(data, security)
    server = NodeServer(node, Address.parse(listen), security, bulk_port=bulk_port)
    address = advertise or str(Address(Address.parse(listen).host, server.port))
    heartbeat = Heartbeat(node, address=address, coordinator=coordinator, security=security)
    heartbeat.start()
    click.echo(f"node {node.id} listens on {address}, coordinator {coordinator}", err=True)
    stopped = threading.Event()
    said = None
    with stopped_by_signals(stopped.set):
        while not stopped.wait(_LOOK_S) and heartbeat.refused is None:
            if (hindrance := heartbeat.hindrance) != said and hindrance is not None:
                click.echo(f"waiting: {hindrance.code} {hindrance.message}\n  fix: {hindrance.fix}", err=True)
            said = hindrance
    heartbeat.stop()
    if heartbeat.refused is not None:
        raise heartbeat.refused
    _leave()


@click.command()
@_data
@_listen
@click.option(
    "--node-timeout",
    type=DURATION,
    default="1500ms",
    show_default=True,
    help="Without a heartbeat for so long a node counts as down.",
)
@click.option(
    "--replace-after",
    type=DURATION,
    default="60s",
    show_default=True,
    help="Down for so long, and what it held is copied to other nodes.",
)
@security_options
def coordinate(data: Path, listen: str, node_timeout: int, replace_after: int, files: SecurityFiles) -> None:
    """Run the coordinator: it knows the nodes, places segments on them, decides where segments end."""
    from truecut.journal.replicated.coordinator import Coordinator
    from truecut.journal.replicated.coordinator_server import serve_coordinator
    from truecut.journal.replicated.keeper import Keeper
    from truecut.journal.replicated.registry import Registry
    from truecut.listen_address import Address

    security = _security(files, listen)
    coordinator = Coordinator(
        Registry(data), node_timeout_s=node_timeout / 1000, replace_after_s=replace_after / 1000
    )
    server = serve_coordinator(coordinator, Address.parse(listen), security)
    keeper = Keeper(coordinator, security)
    keeper.start()
    click.echo(f"coordinator listens on {Address(Address.parse(listen).host, server.port)}", err=True)
    stopped = threading.Event()
    with stopped_by_signals(stopped.set):
        stopped.wait()
    keeper.stop()
    _leave()


@click.command()
@click.option("--coordinator", type=ADDRESS, required=True, metavar="HOST:PORT", help="The coordinator.")
@click.option("--json", "as_json", is_flag=True, help="One document (truecut.journal-status/v1) on stdout.")
@security_options
def status(coordinator: str, as_json: bool, files: SecurityFiles) -> int:
    """Show nodes and logs; exit 1 when a log waits for something."""
    give_back()
    from truecut.cli.output import print_json
    from truecut.journal.replicated.wire import Peer

    found = Peer(coordinator, files.read()).ask("coordinator.status", {})
    if as_json:
        print_json({"schema": "truecut.journal-status/v1", **found})
    else:
        _show(found)
    return ExitCode.FAILED if any(log["waiting"] for log in found["logs"]) else ExitCode.OK


def _show(found: dict[str, Any]) -> None:
    for node in found["nodes"]:
        damaged = f"; {len(node['damaged'])} damaged segments" if node["damaged"] else ""
        click.echo(f"node {node['node']}  {node['address']}  {node['state']}{damaged}")
    for log in found["logs"]:
        state = "open" if log["open"] else "idle"
        lacking = f", {log['under_replicated']} lack a replica" if log["under_replicated"] else ""
        click.echo(
            f"log {log['log']}  {state}, {log['segments']} segments on {log['replicas']} nodes each{lacking}"
        )
        if log["waiting"]:
            click.echo(f"  waiting: {log['waiting']['message']}\n  fix: {log['waiting']['fix']}")


def _security(files: SecurityFiles, listen: str) -> Security:
    from truecut.journal.replicated.wire import require_protected
    from truecut.listen_address import Address

    security = files.read()
    require_protected(Address.parse(listen), security)
    if security.authority is not None and security.certificate is None:
        raise click.UsageError(
            "--tls-ca needs --tls-cert and --tls-key here: without them nothing is encrypted"
        )
    if security.token is not None and not security.encrypted and not Address.parse(listen).loopback:
        click.echo("warning: the token travels unencrypted; --tls-cert and --tls-key encrypt it", err=True)
    return security


def _leave() -> None:
    """At once: streams of others would be waited for, and everything that was answered is durable."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ExitCode.OK)
