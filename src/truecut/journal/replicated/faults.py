"""What can go wrong between the processes of a replicated log, in words for its user."""

from __future__ import annotations

from pathlib import Path

from truecut.errors import ExitCode, Retry, TruecutError

NODE_TWICE = "TC6050"


def too_few_nodes(log: str, *, wanted: int, found: int) -> TruecutError:
    """Appends wait."""
    return TruecutError(
        "TC6040",
        f"the log {log} wants {wanted} nodes, and {found} can take a segment now",
        fix="Start log nodes (`truecut journal serve`), or free their disks; appends go on by themselves.",
        retry=Retry.RETRYABLE,
    )


def unreachable(address: str) -> TruecutError:
    """Nobody answers."""
    return TruecutError(
        "TC6041",
        f"{address} does not answer",
        fix="Check that it runs, that both sides use TLS or neither, and that it believes your certificate. "
        "Log nodes and running pipelines try again; a command can be repeated.",
        retry=Retry.RETRYABLE,
    )


def refused(address: str) -> TruecutError:
    """The wrong token."""
    return TruecutError(
        "TC6042",
        f"{address} does not accept the token",
        fix="Give all processes of the log the same --token-file (or TRUECUT_JOURNAL_TOKEN).",
        exit_code=ExitCode.WRONG_INPUT,
    )


def wrong_role(role: str, action: str) -> TruecutError:
    """The address of something else was given."""
    return TruecutError(
        "TC6043",
        f"this is a {role} of the log; it does not know {action}",
        fix="Check the address: --coordinator wants the one that `truecut journal coordinate` listens on.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def other_version(found: str, known: int) -> TruecutError:
    """It speaks another protocol."""
    return TruecutError(
        "TC6044",
        f"the caller speaks version {found} of the log's protocol, this process speaks {known}",
        fix="Run the same version of truecut everywhere.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def certificates_do_not_fit(address: str) -> TruecutError:
    """TLS on one side only, or certificates that nobody believes."""
    return TruecutError(
        "TC6059",
        f"no encrypted connection to {address}: it does not speak TLS, or its certificate is not believed",
        fix="Give the --tls-ca that signed its certificate, which must name its address; or no --tls options "
        "at all where it has none.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def bad_log_name() -> TruecutError:
    """It would be a path, or no folder at all."""
    return TruecutError(
        "TC6060",
        "the name of the log cannot be that of a folder",
        fix="Choose a name of at most 200 bytes that prints, without a slash, and with no dot in front.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def segment_over(log: str, segment: int) -> TruecutError:
    """Whoever wants to append to it has slept; or the node has lost what it had."""
    return TruecutError(
        "TC6066",
        f"segment {segment} of the log {log} is over on this node, or lost; it is not begun again",
        fix="None needed: its writer goes on in another segment, or hears that the log was taken over.",
        retry=Retry.RETRYABLE,
    )


def another_node(log: str, segment: int) -> TruecutError:
    """A node with another folder listens at the address."""
    return TruecutError(
        "TC6022",
        f"this is not the node that was placed for segment {segment} of the log {log}",
        fix="None needed: the coordinator hears from this one, and misses the other.",
        retry=Retry.RETRYABLE,
    )


def coordinator_stopped() -> TruecutError:
    """It was asked to stop; what nobody was told has not happened."""
    return TruecutError(
        "TC6068",
        "the coordinator is stopping and saves nothing any more",
        fix="Start it again; whoever waits for it goes on by itself.",
        retry=Retry.RETRYABLE,
    )


def keeper_failed(task: str, what: str) -> TruecutError:
    """An error that nobody foresaw, in the coordinator's own work."""
    return TruecutError(
        "TC6067",
        f"the coordinator cannot {task} ({what})",
        fix="It is tried again. Its log has the details; if it stays, report it.",
        retry=Retry.RETRYABLE,
    )


def overloaded(what: str) -> TruecutError:
    """For the moment."""
    return TruecutError(
        "TC6061",
        f"the node cannot do that now ({what})",
        fix="Raise its limits (`ulimit -n`) if it happens often; it is tried again.",
        retry=Retry.RETRYABLE,
    )


def not_fenced(log: str, segment: int) -> TruecutError:
    """Somebody wants everything that it has, while more may come."""
    return TruecutError(
        "TC6062",
        f"segment {segment} of the log {log} is still written to on this node; it cannot be copied",
        fix="None needed: it is copied once it is fenced.",
        retry=Retry.RETRYABLE,
    )


def not_understood(what: str) -> TruecutError:
    """A question that makes no sense."""
    return TruecutError(
        "TC6045",
        f"the question was not understood ({what})",
        fix="Run the same version of truecut everywhere.",
    )


def exposed(listen: str) -> TruecutError:
    """Anybody could write to it."""
    return TruecutError(
        "TC6046",
        f"{listen} can be reached from other machines, and anybody could use it",
        fix="Give a --token-file, or certificates for mutual TLS (--tls-cert, --tls-key, --tls-ca); or "
        "listen on 127.0.0.1.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def cannot_listen(listen: str) -> TruecutError:
    """The port is taken, or the certificate is no certificate."""
    return TruecutError(
        "TC6047",
        f"cannot listen on {listen}",
        fix="Check that the port is free, and that certificate and key are PEM files that belong together.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def folder_in_use(folder: Path) -> TruecutError:
    """Two processes would write the same files."""
    return TruecutError(
        "TC6048",
        f"another process uses {folder}",
        fix="Stop it, or give this one a folder of its own.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def other_cluster(node: str) -> TruecutError:
    """Its data belongs to another coordinator."""
    return TruecutError(
        "TC6049",
        f"the data of node {node} belongs to another coordinator's logs",
        fix="Check --coordinator and --data. A node that shall begin anew needs an empty folder.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def node_twice(node: str, address: str) -> TruecutError:
    """A folder was copied."""
    return TruecutError(
        NODE_TWICE,
        f"node {node} is alive at {address}, too",
        fix="A node's folder cannot be copied to make another node: give the second one an empty folder.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def other_log(log: str, segment: int) -> TruecutError:
    """Same name, another identity."""
    return TruecutError(
        "TC6051",
        f"segment {segment} of the log {log} on this node belongs to another log of that name",
        fix="Give the node an empty folder; what it should hold is copied to it.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def replica_damaged(log: str, segment: int) -> TruecutError:
    """It is not served; it is copied from another node."""
    return TruecutError(
        "TC6052",
        f"segment {segment} of the log {log} is damaged on this node",
        fix="None needed while another replica is alive: it is copied from there.",
        retry=Retry.RETRYABLE,
    )


def not_there(log: str, segment: int) -> TruecutError:
    """The node has nothing of it."""
    return TruecutError(
        "TC6053",
        f"this node has nothing of segment {segment} of the log {log}",
        fix="None needed: another replica is asked.",
        retry=Retry.RETRYABLE,
    )


def no_such_log(log: str) -> TruecutError:
    """Nobody has written to it."""
    return TruecutError(
        "TC6054",
        f"there is no log {log}",
        fix="Check --log; a log is made by the first append.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def taken_over(log: str) -> TruecutError:
    """Another producer owns the log."""
    return TruecutError(
        "TC6055",
        f"another writer has taken the log {log} over",
        fix="None needed here: what was not acknowledged is the other one's to write.",
        retry=Retry.FATAL,
    )


def no_replica(log: str, segment: int) -> TruecutError:
    """All of them are down or damaged."""
    return TruecutError(
        "TC6056",
        f"no replica of segment {segment} of the log {log} can be read now",
        fix="Start its nodes; `truecut journal status` names them.",
        retry=Retry.RETRYABLE,
    )


def bad_frame(what: str) -> TruecutError:
    """What came over the wire is not what was sent."""
    return TruecutError(
        "TC6057",
        f"a frame arrived that is not what was sent ({what})",
        fix="None needed: it is sent again.",
        retry=Retry.RETRYABLE,
    )


def identity_damaged(path: Path, what: str) -> TruecutError:
    """Nobody can say which node this is."""
    return TruecutError(
        "TC6063",
        f"{path} is damaged: {what}",
        fix="Start the node with an empty folder: what it held is copied from the others. An older copy of "
        "the file would not know what it held since.",
        exit_code=ExitCode.VERIFICATION_FAILED,
    )


def repaired_from_peers(folder: Path) -> TruecutError:
    """Cutting a replica short would lose what the others have."""
    return TruecutError(
        "TC6064",
        f"{folder} is the folder of a log node; --repair is for logs that have no other copy",
        fix="None needed: a running node (`truecut journal serve`) repairs its replicas from the others.",
        exit_code=ExitCode.WRONG_INPUT,
    )


def registry_damaged(path: Path, what: str) -> TruecutError:
    """The coordinator's memory cannot be trusted."""
    return TruecutError(
        "TC6058",
        f"{path} is damaged: {what}",
        fix="Put a copy of the file back. The nodes' data is not touched; without a copy, ask for help.",
        exit_code=ExitCode.VERIFICATION_FAILED,
    )


def unfinished(log: str) -> TruecutError:
    """It was closed while appends waited."""
    return TruecutError(
        "TC6065",
        f"the log {log} was closed before everything was committed",
        fix="What has no position may or may not be in the log; append it again once the log has its nodes.",
        retry=Retry.FATAL,
    )
