"""The kinds of sources and sinks there are: what each adds to the pipeline file, and how it is opened.

A kind is an entry point of the group `truecut.sources` or `truecut.sinks`, under the name that `type:` has in
the file. Ours and others' are found the same way, and only the kind that a file names is loaded. Nothing
here knows any of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, create_model
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from truecut.config.section import Section, SinkSection, SourceSection

if TYPE_CHECKING:
    from truecut.config.beginning import Beginning, FoundTable
    from truecut.config.settings import SinkSettings, SourceSettings
    from truecut.model.finding import Check, Finding
    from truecut.sinks.contract import Pinned, Sink, SinkLook
    from truecut.sources.captured import Captured
    from truecut.sources.contract import Reread, Source, Survey


class Address(Protocol):
    """Where a source or a sink is, as its connector needs to know it. Picklable; prints no secret."""

    def identity(self, folders: dict[str, str]) -> Hashable:
        """Equal for two addresses of one place, found out without connecting.

        `folders` remembers the folders that were looked at, so that thousands of files cost one look each.
        """
        ...

    def folders(self) -> Iterator[Path]:
        """The folders of this machine that are written to; perhaps they do not exist yet."""
        ...

    def data_folder(self) -> PurePath | None:
        """The folder that must be nobody else's, if there is one: a Path on this machine, else in a store."""
        ...

    def places(self) -> Iterator[tuple[str, str]]:
        """The files and folders of this machine that it is in, each with the setting that names it."""
        ...


class Unusable(Exception):
    """A section whose values are each right, but mean nothing that can be used."""

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(message)
        self.setting = setting
        self.message = message


@dataclass(frozen=True, slots=True)
class SourceWords:
    """What is said of a source to its users, where what all sources have in common does not help them."""

    commits: str = "transactions"  # what is outstanding is counted in them
    behind: str = "its server and storage"  # what to look at when it says nothing
    keep: str = "let the source keep its history longer than a sink may lag"  # what prevents gaps


class Kind(Protocol):
    """What sources and sinks have in common."""

    @property
    def title(self) -> str:
        """Its name in sentences."""
        ...

    @property
    def section(self) -> type[Section]:
        """Its part of the pipeline file; `type` is a Literal."""
        ...

    @property
    def worker_modules(self) -> Sequence[str]:
        """What Spark's workers need of it: imported once, in the process that they are forked from."""
        ...

    def check_engine(self) -> Check:
        """Whether what it is made of (a client, a driver) is installed and works. `doctor` asks first."""
        ...


class SourceKind(Kind, Protocol):
    """One `type:` of source."""

    @property
    def section(self) -> type[SourceSection]: ...

    @property
    def words(self) -> SourceWords:
        """What its users are told of it."""
        ...

    @property
    def dsn_begins(self) -> Sequence[str]:
        """What a DSN begins with that is of this kind; "" where it takes those that nobody else does."""
        ...

    @property
    def knows_keys(self) -> bool:
        """Whether the source knows its tables' primary keys; if not, the file has to name them."""
        ...

    @property
    def captured(self) -> bool:
        """Whether it keeps no history of its own, so that its changes are captured into a journal."""
        ...

    @property
    def lists_tables(self) -> bool:
        """Whether names of tables may have wildcards."""
        ...

    def tables(self, settings: SourceSettings) -> Sequence[FoundTable]:
        """Those that it has, with their keys, where it lists tables or knows keys."""
        ...

    def settle(self, section: Any, *, base: Path) -> Address:
        """The address that a section means, relative paths from `base`; Unusable when there is none."""
        ...

    def open(self, settings: SourceSettings, *, generation: int) -> Source:
        """The driver's side. Imports late."""
        ...

    def place(self, text: str) -> int:
        """The place that a position has in the source's own form; ValueError, which says what is expected."""
        ...

    def begin(self, dsn: str | None, *, folder: Path) -> Beginning:
        """What `truecut init` writes for a file in `folder`; Unusable when the DSN is none of this kind."""
        ...

    def survey(self, settings: SourceSettings, *, generation: int) -> Survey:
        """What `plan` and `doctor` ask; a run, too, before it begins."""
        ...

    def reread(self, settings: SourceSettings, *, generation: int) -> AbstractContextManager[Reread]:
        """What `verify` reads, as long as it takes; TruecutError when it cannot be read."""
        ...


class CapturedKind(SourceKind, Protocol):
    """One `type:` of source that is `captured`."""

    def capturing(self, settings: SourceSettings) -> Captured:
        """What capture and the backfill ask. Imports late."""
        ...


class SinkKind(Kind, Protocol):
    """One `type:` of sink."""

    @property
    def section(self) -> type[SinkSection]: ...

    @property
    def holder(self) -> str:
        """What no two sinks may share: a catalog, a schema."""
        ...

    def settle(self, section: Any, *, base: Path) -> Address:
        """As for a source, once the placeholders of `for_each` are filled."""
        ...

    def called(self, address: Any, table: str) -> str:
        """The name, schema.table, that a table of the source has at that address."""
        ...

    def open(self, settings: SinkSettings, *, pipeline: str) -> Sink[Any]:
        """The executor's side. Imports late."""
        ...

    def example(self, name: str) -> str:
        """Lines of YAML for a sink: what `truecut init` writes below its name."""
        ...

    def look(self, sinks: Sequence[SinkSettings], *, pipeline: str) -> Mapping[str, SinkLook]:
        """What stands at these sinks, by name: read-only, no fence is raised, however many there are."""
        ...

    def unfit(self, sink: SinkSettings, look: SinkLook) -> Iterator[Finding]:
        """Why a run could not write to a sink, as far as that can be known without writing."""
        ...

    def pin(self, sink: SinkSettings, *, pipeline: str) -> AbstractContextManager[Pinned]:
        """The sink as it is now, to be read while it goes on changing; TruecutError when it cannot be."""
        ...


K = TypeVar("K", bound=Kind)


@dataclass
class Kinds(Generic[K]):
    """The kinds of one group of entry points."""

    group: str
    _loaded: dict[str, K] = field(default_factory=dict)

    @cached_property
    def _points(self) -> Mapping[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}

    @property
    def names(self) -> list[str]:
        """What `type:` may say."""
        return sorted(self._points)

    def find(self, name: object) -> K | None:
        """The kind of that name, loaded when it is first asked for."""
        if not isinstance(name, str) or name not in self._points:
            return None
        if name not in self._loaded:
            self._loaded[name] = self._points[name].load()
        return self._loaded[name]

    def sections(self) -> list[type[Section]]:
        """The models of all kinds."""
        return [self[name].section for name in self.names]

    def __getitem__(self, name: str) -> K:
        found = self.find(name)
        if found is None:
            raise KeyError(f"{self.group}: {name}")
        return found


def kind_of(dsn: str) -> str:
    """The kind of source that a DSN is of, as it begins: of those that fit the one that says most."""
    begins = [(begin, name) for name in SOURCES.names for begin in SOURCES[name].dsn_begins]
    return max((len(begin), name) for begin, name in begins if dsn.startswith(begin))[1]


def worker_modules(source: str, sinks: Iterable[str]) -> tuple[str, ...]:
    """What Spark's workers need of these kinds; of others that are installed nothing is loaded."""
    kinds: list[Kind] = [SOURCES[source], *(SINKS[name] for name in sorted(set(sinks)))]
    return tuple(dict.fromkeys(module for kind in kinds for module in kind.worker_modules))


SOURCES: Kinds[SourceKind] = Kinds("truecut.sources")
SINKS: Kinds[SinkKind] = Kinds("truecut.sinks")


@dataclass(frozen=True)
class OneOf:
    """Marks a section whose `type` says which model it has."""

    kinds: Kinds[Any]

    def model(self, name: object) -> type[Section]:
        """The model of a type; of an unknown one, a model that refuses the type and asks nothing else."""
        found = self.kinds.find(name)
        return self._refusal if found is None else found.section

    @property
    def _refusal(self) -> type[Section]:
        allowed: Any = Literal[tuple(self.kinds.names)]
        return create_model("Unknown", __base__=_Untyped, type=(allowed, ...))

    def __get_pydantic_core_schema__(self, annotation: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        base = handler(annotation)  # what is no mapping at all is refused as that

        def choose(data: object, inner: core_schema.ValidatorFunctionWrapHandler) -> object:
            if not isinstance(data, dict):
                return inner(data)
            return self.model(data.get("type")).model_validate(data)

        return core_schema.no_info_wrap_validator_function(choose, base)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {}  # `config/schema.py` fills it in


class _Untyped(Section, extra="ignore"):
    """A section of a kind that nobody knows: what else it holds is right or wrong by rules unknown."""
