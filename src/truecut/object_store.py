"""Lakes whose files lie in an object store that speaks S3: what the pipeline file says of it, what DuckDB
has to know, what its errors mean.

Promises: credentials are a `Secret` from the moment the section is settled, and nothing of an address or of
a store's answer is kept in a fault. Whoever writes no credentials gets the usual chain (environment, profile,
role) of the process that connects: of every executor its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from truecut.config import rules
from truecut.config.kinds import Unusable
from truecut.config.secret import Secret
from truecut.config.section import Section, Text
from truecut.errors import Fault, Retry, Symptom

SCHEME = "s3://"
_ANY_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PLACE = re.compile(r"s3://[^/?#@:*\s]+(/[^?#*]*)?")  # DuckDB reads settings, keys included, from a query
_NEAR = frozenset({"s3a", "s3n", "S3"})


def _host(text: str) -> str:
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        bare = parts.hostname and parts.path in ("", "/") and parts.scheme in ("http", "https")
        whole = bare and not parts.username and not parts.query and not parts.fragment
        _ = parts.port
    except ValueError:
        whole = None
    if not whole or set("{} '") & set(text):
        raise PydanticCustomError(
            rules.OUT_OF_RANGE.code,
            "expected HOST:PORT of the store, perhaps with http:// or https:// before it",
        )
    return text


def _region(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]+", text):
        raise PydanticCustomError(rules.OUT_OF_RANGE.code, "expected a region's name, e.g. eu-central-1")
    return text


class StorageSection(Section):
    """How the object store of `data_path` is reached, where the usual chain does not do."""

    endpoint: Annotated[Text, AfterValidator(_host)] | None = Field(
        default=None, description="HOST:PORT of a store that speaks S3. Left out: Amazon's."
    )
    region: Annotated[Text, AfterValidator(_region)] | None = Field(
        default=None, description="The bucket's region. Left out: `AWS_REGION`, or Amazon's default."
    )
    key_id: Text | None = Field(
        default=None, description="Access key. Left out, with `secret`: environment, profile or role."
    )
    secret: Text | None = Field(default=None, description="Secret key; write it as a `${…}`.")
    url_style: Literal["path", "vhost"] | None = Field(
        default=None, description="Where the bucket stands in a URL. Left out: path, if there is an endpoint."
    )
    use_ssl: bool | None = Field(
        default=None, description="Whether HTTPS is spoken. Left out: as the endpoint says, or yes."
    )


@dataclass(frozen=True, slots=True)
class Storage:
    """A store, as DuckDB needs to know it."""

    endpoint: str | None = None
    region: str | None = None
    key_id: Secret | None = None
    secret: Secret | None = None
    url_style: str | None = None
    use_ssl: bool = True

    @property
    def by_chain(self) -> bool:
        """Whether credentials are looked for where they usually are."""
        return self.key_id is None

    def options(self) -> Iterator[tuple[str, str | bool]]:
        """Of DuckDB's CREATE SECRET. They hold the secret: for that one statement."""
        if self.key_id is not None and self.secret is not None:
            yield "KEY_ID", self.key_id.reveal()
            yield "SECRET", self.secret.reveal()
        else:
            yield "PROVIDER", "credential_chain"
            yield "REFRESH", "auto"  # a role's credentials end after hours
        if self.endpoint is not None:
            yield "ENDPOINT", self.endpoint
            yield "USE_SSL", self.use_ssl
        if self.region is not None:
            yield "REGION", self.region
        if self.url_style is not None:
            yield "URL_STYLE", self.url_style


AMAZON = Storage()


def settle(section: StorageSection | None, data_path: str | None) -> Storage | None:
    """The store that a section means, for a usable data path; None: nothing was said of it."""
    if section is None:
        return None
    if data_path is not None and not data_path.startswith(SCHEME):
        raise Unusable("storage", "is for a data_path that begins with s3://")
    if (section.key_id is None) != (section.secret is None):
        raise Unusable("storage", "key_id and secret belong together; give both, or none for the usual chain")
    scheme, _, host = (section.endpoint or "").rpartition("://")
    if scheme and section.use_ssl not in (None, scheme == "https"):
        raise Unusable("storage", "endpoint and use_ssl contradict each other; take one's protocol out")
    return Storage(
        endpoint=host.rstrip("/") or None,
        region=section.region,
        key_id=None if section.key_id is None else Secret(section.key_id),
        secret=None if section.secret is None else Secret(section.secret),
        url_style=section.url_style or ("path" if host else None),
        use_ssl=section.use_ssl if section.use_ssl is not None else scheme != "http",
    )


def usable_data_path(data_path: str | None) -> str | None:
    """The same, if it is a path or a place in a store that speaks S3."""
    scheme = None if data_path is None else _ANY_SCHEME.match(data_path)
    if data_path is None or scheme is None:
        return data_path
    if scheme[1] == "file":
        raise Unusable("data_path", "write the path alone, without file://")
    if not data_path.startswith(SCHEME):
        near = "; did you mean s3://?" if scheme[1] in _NEAR else ""
        message = "a path, or s3://BUCKET/PREFIX (with `storage` for other stores that speak S3)"
        raise Unusable("data_path", f"no object store that Truecut knows: give {message}{near}")
    if not _PLACE.fullmatch(data_path):
        raise Unusable(
            "data_path", "expected s3://BUCKET/PREFIX and nothing else; credentials go into `storage`"
        )
    return data_path


def is_remote(path: str) -> bool:
    """Whether it names a place in an object store of whatever kind."""
    return _ANY_SCHEME.match(path) is not None


def scope(data_path: str) -> str:
    """The prefix of all that lies there."""
    return data_path.rstrip("/") + "/"


# --- what a store's answers mean ------------------------------------------------------------------------

FILE_GONE = "TC4066"
# Of DuckDB's text: a status, the name that S3 gives to an error, or curl's words.
_SYMPTOMS = (
    Symptom(
        ("secret validation failure",),
        "TC4061",
        "no credentials for the object store were found",
        "Give `storage` with key_id and secret, or set environment, profile or role on every executor.",
    ),
    Symptom(
        ("no object store that truecut knows",),
        "TC4068",
        "its catalog keeps the data in an object store that does not speak S3",
        "Move the data to a folder or to a store that speaks S3.",
    ),
    Symptom(
        ("quotaexceeded", "quota exceeded", "storagefull", "insufficient storage", "http 507", "code 507"),
        "TC4065",
        "the object store is full, or its quota is used up",
        "Make room, or raise the quota; a running pipeline goes on by itself.",
        Retry.RETRYABLE,
    ),
    Symptom(
        ("nosuchbucket",),
        "TC4062",
        "there is no such bucket",
        "Make the bucket, or correct `data_path`; Truecut makes none.",
    ),
    Symptom(
        ("permanentredirect", "authorizationheadermalformed", "http 301", "code 301"),
        "TC4067",
        "the bucket lies in another region",
        "Give its region: `storage: {region: …}`, or AWS_REGION on every executor.",
    ),
    Symptom(
        ("http 403", "code 403", "http 401", "code 401"),
        "TC4060",
        "the object store refuses the credentials, or they do not allow this",
        "Check key and secret (`storage`, or environment, profile and role of every executor), and that they"
        " may list, read, write and delete below `data_path`.",
    ),
    Symptom(
        ("http 404", "code 404"),
        FILE_GONE,
        "a file is gone from the object store",
        "A running pipeline tries again by itself. If it persists, somebody has deleted files of the lake.",
        Retry.RETRYABLE,
    ),
    Symptom(
        ("http 5", "code 5", "http 429", "code 429", "slowdown"),
        "TC4064",
        "the object store has trouble of its own, is overloaded or full",
        "Look at the store; a running pipeline tries again by itself.",
        Retry.RETRYABLE,
    ),
    Symptom(
        ("error for http", "timeout", "connect"),
        "TC4063",
        "the object store does not answer",
        "Check its endpoint, the network and the certificate; a running pipeline tries again by itself.",
        Retry.RETRYABLE,
    ),
    Symptom(
        ("http",),
        "TC4069",
        "the object store refuses a request",
        "Check that it speaks S3, and `storage`.",
    ),
)
_ADDRESS = re.compile(r"'[a-z0-9+.-]+://[^']*'|\S+://\S+")
_OF_A_STORE = re.compile(
    r"\bhttp (error|get|put|post|head|delete|code|\d{3})"
    r"|secret validation failure|no object store that truecut knows"
)


def fault_of(text: str, *, what: str) -> Fault | None:
    """What an error of DuckDB, in small letters, says about a store; None: it is about something else."""
    text = _ADDRESS.sub("", text)
    if not _OF_A_STORE.search(text):
        return None
    found = next(symptom for symptom in (*_SYMPTOMS, _SYMPTOMS[-1]) if symptom.shows_in(text))
    return found.fault(what)
