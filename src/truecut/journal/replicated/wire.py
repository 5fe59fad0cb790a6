"""How the processes of a replicated log talk: Arrow Flight, with JSON for questions and frames for records.

Every call carries the protocol's version and, where one is set, the shared token. An error crosses the
wire with its code and its advice. Whoever cannot be reached is an error that a retry can help.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import flight

from truecut.config.secret import Secret
from truecut.errors import ExitCode, Fault, Retry, TruecutError
from truecut.journal.replicated import faults
from truecut.journal.security import Security
from truecut.listen_address import Address

VERSION = 1
FRAMES = pa.schema([("frame", pa.large_binary())])
ASK_TIMEOUT_S = 2.0

BROKEN = (flight.FlightError, pa.ArrowException, OSError)  # what pyarrow raises when a call fails

Message = dict[str, Any]
Action = Callable[[Message], Message]

_CHANNEL = [  # each connection fails and comes back on its own, soon
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),  # in spite of its name the time to connect
    ("grpc.max_reconnect_backoff_ms", 500),
]


def headers_of(security: Security) -> list[tuple[bytes, bytes]]:
    """What every call carries."""
    version = [(b"truecut-journal", str(VERSION).encode())]
    if security.token is None:
        return version
    return [*version, (b"authorization", f"Bearer {security.token.reveal()}".encode())]


class Peer:
    """Another process of the log, for any number of threads."""

    def __init__(self, address: str, security: Security) -> None:
        self.address = address
        self._security = security
        scheme = "grpc+tls" if security.encrypted else "grpc"
        self._client = flight.FlightClient(
            f"{scheme}://{address}",
            tls_root_certs=security.authority,
            cert_chain=security.certificate if security.key else None,
            private_key=security.key.reveal() if security.key else None,
            generic_options=_CHANNEL,
        )

    def ask(self, action: str, request: Message, *, timeout_s: float = ASK_TIMEOUT_S) -> Message:
        """One question, one answer."""
        try:
            body = json.dumps(request).encode()
            results = self._client.do_action(flight.Action(action, body), self._options(timeout_s))
            return dict(json.loads(next(iter(results)).body.to_pybytes()))
        except (*BROKEN, StopIteration, ValueError) as error:
            raise self.failure(error) from error

    def put(self, command: Message) -> tuple[Any, Any]:
        """A stream of frames to it, and of its answers back."""
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
        try:
            writer, answers = self._client.do_put(descriptor, FRAMES, self._options(None))
        except BROKEN as error:
            raise self.failure(error) from error
        return writer, answers

    def get(self, ticket: Message, *, timeout_s: float | None = None) -> Iterator[memoryview]:
        """The frames that it has, one after the other."""
        try:
            stream = self._client.do_get(flight.Ticket(json.dumps(ticket).encode()), self._options(timeout_s))
            for chunk in stream:
                yield from _frames_of(chunk.data)
        except BROKEN as error:
            raise self.failure(error) from error

    def failure(self, error: Exception) -> TruecutError:
        """What an error of a call means here."""
        told = _told(getattr(error, "extra_info", b""))
        if told is not None:
            return told
        if isinstance(error, flight.FlightUnauthenticatedError | flight.FlightUnauthorizedError):
            return faults.refused(self.address)
        if "Ssl handshake failed" in str(error):
            return faults.certificates_do_not_fit(self.address)
        return faults.unreachable(self.address)

    def close(self) -> None:
        """Let the connection go."""
        self._client.close()

    def _options(self, timeout_s: float | None) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=timeout_s, headers=headers_of(self._security))


class Server(flight.FlightServerBase):  # type: ignore[misc]
    """A process that answers questions: `actions` by name. It listens as soon as it is made."""

    def __init__(self, role: str, listen: Address, security: Security, actions: Mapping[str, Action]) -> None:
        require_protected(listen, security)
        scheme = "grpc+tls" if security.certificate else "grpc"
        key = security.key.reveal() if security.key else None
        self._role = role
        self._actions = actions
        try:
            super().__init__(
                f"{scheme}://{listen}",
                tls_certificates=[(security.certificate, key)] if security.certificate else None,
                verify_client=_mutual(security),
                root_certificates=security.authority if security.certificate else None,
                middleware={"guard": _Guard(security.token)},
            )
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise faults.cannot_listen(str(listen)) from error

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        """Dispatch; whatever goes wrong is told to whoever asked."""
        return [self.answer(lambda: json.dumps(self._act(action)).encode())]

    def answer(self, act: Callable[[], Any]) -> Any:
        """Its result, or its error in a form that crosses the wire."""
        try:
            return act()
        except TruecutError as error:
            raise flight.FlightServerError(error.fault.message, _telling(error)) from error
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            told = faults.not_understood(type(error).__name__)
            raise flight.FlightServerError(told.fault.message, _telling(told)) from error

    def _act(self, action: Any) -> Message:
        found = self._actions.get(action.type)
        if found is None:
            raise faults.wrong_role(self._role, action.type)
        return found(message_of(action.body.to_pybytes()))


class _Guard(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets nobody in who does not know the token, or speaks another version."""

    def __init__(self, token: Secret | None) -> None:
        self._token = token

    def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> None:
        if self._token is not None:
            given = _only(headers, "authorization").encode(errors="replace")
            if not hmac.compare_digest(given, f"Bearer {self._token.reveal()}".encode()):
                raise flight.FlightUnauthenticatedError("the token is not the right one")
        version = _only(headers, "truecut-journal")
        if version != str(VERSION):
            error = faults.other_version(version[:20] or "none", VERSION)
            raise flight.FlightServerError(error.fault.message, _telling(error))


def require_protected(listen: Address, security: Security) -> None:
    """Nobody listens to other machines who would answer anybody."""
    if not listen.loopback and security.token is None and not _mutual(security):
        raise faults.exposed(str(listen))


def message_of(body: bytes) -> Message:
    """A question or a command as it was sent; ValueError when it is none."""
    found = json.loads(body)
    if not isinstance(found, dict):
        raise faults.not_understood("it is not a document")
    return found


def _only(headers: Mapping[str, list[str]], name: str) -> str:
    given = headers.get(name) or []
    return str(given[0]) if len(given) == 1 else ""


def _frames_of(batch: pa.RecordBatch) -> Iterator[memoryview]:
    if batch is None or batch.schema != FRAMES or batch.column(0).null_count:
        raise pa.ArrowInvalid("not frames")
    for frame in batch.column(0):
        yield memoryview(frame.as_buffer())


def _mutual(security: Security) -> bool:
    return security.certificate is not None and security.authority is not None


def _telling(error: TruecutError) -> bytes:
    fault = error.fault
    return json.dumps([fault.code, fault.message, fault.fix, fault.retry.value, error.exit_code]).encode()


def _told(data: bytes) -> TruecutError | None:
    try:
        code, message, fix, retry, exit_code = json.loads(data)
        return TruecutError.of(Fault(code, message, fix, Retry(retry)), ExitCode(exit_code))
    except (ValueError, TypeError, RecursionError):
        return None
