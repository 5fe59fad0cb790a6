"""Whether Spark takes a pipeline's settings: what can be known before it starts, and what it refused.

Promises: a finding names the setting and its line; Spark's own text, which may repeat a value, is not in it.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

from truecut.config.settings import Pipeline
from truecut.errors import ExitCode, Fault, TruecutError
from truecut.listen_address import Address

CONNECT_S = 5.0
_FORMS = re.compile(r"local(\[(\*|[1-9]\d*)(\s*,\s*\d+)?\])?|local-cluster\[[^\]]+\]|yarn|(spark|k8s)://.+")
_MASTERS = re.compile(r"spark://(.+)")


def refused_master(pipeline: Pipeline) -> Fault | None:
    """A master that is none, or that nobody listens at."""
    master = pipeline.spark.master
    if master is None:
        return None
    if not _FORMS.fullmatch(master):
        return Fault(
            "TC5005",
            f"{_place(pipeline, 'master')}: not a master of Spark",
            "Write e.g. local[4], spark://HOST:7077, yarn or k8s://…; or leave it out.",
        )
    found = _MASTERS.fullmatch(master)
    if found is not None and not any(map(_answers, _addresses(found[1]))):
        return Fault(
            "TC5006",
            f"{_place(pipeline, 'master')}: nobody listens at this address",
            "Start the cluster, or correct host and port.",
        )
    return None


def _addresses(text: str) -> Iterator[Address]:
    for part in text.split(","):
        try:
            yield Address.parse(part)
        except ValueError:
            continue


def _answers(address: Address) -> bool:
    try:
        socket.create_connection((address.host, address.port), timeout=CONNECT_S).close()
    except OSError:
        return False
    return True


def refused(pipeline: Pipeline, said: str) -> TruecutError:
    """Spark did not start; `said` is what it printed or raised."""
    names = [name for name in pipeline.spark.conf if name in said] or _by_value(pipeline, said)
    names = names or list(pipeline.spark.conf)
    if not names:
        return TruecutError(
            "TC5008",
            "Spark does not start on this machine",
            fix="Check memory and Java; spark.log in the state folder says more.",
            exit_code=ExitCode.UNFIT_ENVIRONMENT,
        )
    places = ", ".join(_place(pipeline, name) for name in names[:3])
    return TruecutError(
        "TC5007",
        f"{places}: Spark does not take this value",
        fix="Correct it, or take it out; spark.log in the state folder says more.",
        exit_code=ExitCode.UNFIT_ENVIRONMENT,
    )


def _by_value(pipeline: Pipeline, said: str) -> list[str]:
    return [name for name, value in pipeline.spark.conf.items() if any(w in said for w in value.split())]


def _place(pipeline: Pipeline, name: str) -> str:
    line = pipeline.spark.lines.get(name)
    where = pipeline.path.name if line is None else f"{pipeline.path.name}:{line}"
    return f"{where}  spark.{name if name == 'master' else f'conf.{name}'}"
