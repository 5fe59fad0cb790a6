"""A PostgreSQL as `plan`, `doctor` and `status` see it: fit or not, how large, how far the journal is.

Read-only: nothing is made or written at the server, not even a message into its log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from truecut.config.settings import SourceSettings
from truecut.errors import Fault, TruecutError
from truecut.journal.decoding import table_hash
from truecut.journal.opening import journal_of, open_reader
from truecut.model.finding import Check, Finding
from truecut.model.position import Position, SourcePosition
from truecut.model.table import TableName
from truecut.sources.contract import Observation, Outstanding, TableFacts, TableRead
from truecut.sources.postgres import checks, journaled, leaves, published, server, shape, unit_faults
from truecut.sources.postgres import messages as wire
from truecut.sources.postgres.address import postgres_source, server_address
from truecut.sources.postgres.captured import CapturedLog, Extent, Section
from truecut.sources.postgres.faults import identifier
from truecut.sources.postgres.generated import left_out
from truecut.sources.postgres.lineage import Look
from truecut.sources.postgres.messages import lsn_text
from truecut.sources.postgres.server import Address
from truecut.sources.postgres.source import NO_LOG
from truecut.sources.postgres.tasks import place_text
from truecut.sources.postgres.units import units_wanted

COMMITS_MAX = 1000
NOT_BEGUN = "not captured yet"

_FACTS = """
SELECT CASE WHEN min(c.reltuples) >= 0 THEN sum(c.reltuples) END::int8,
  sum(pg_total_relation_size(c.oid))::int8, sum(pg_table_size(c.oid))::int8
FROM pg_partition_tree(to_regclass(%s)) t JOIN pg_class c ON c.oid = t.relid WHERE t.isleaf
"""
_PLAIN_FACTS = """
SELECT CASE WHEN reltuples >= 0 THEN reltuples END::int8, pg_total_relation_size(oid), pg_table_size(oid)
FROM pg_class WHERE oid = to_regclass(%s)
"""
_MAY_READ = """
SELECT has_schema_privilege(relnamespace, 'USAGE') AND has_any_column_privilege(oid, 'SELECT')
  AND NOT row_security_active(oid)
FROM pg_class WHERE oid = to_regclass(%s)
"""
_COLUMNS = """
SELECT a.attname, EXISTS (
  SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisprimary AND a.attnum = ANY (i.indkey))
FROM pg_attribute a WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """For `status`: what the server keeps for us, and how far it is released."""

    released: int
    retained_bytes: int
    safe_bytes: int | None  # until it lets go of the slot


@dataclass(frozen=True, slots=True)
class PostgresSurvey:
    """One database and its journal, looked at."""

    settings: SourceSettings
    generation: int

    def observe(self) -> Observation:
        """What is captured; before anything is, where capture would begin."""
        address = server_address(self.settings)
        extent = self._extent()
        look = _look(address)
        flushed = self._position(look.flushed - 1)
        if extent is None:
            identity = f"{look.system}/{look.database}/{NOT_BEGUN}"
            return Observation(identity, flushed, flushed, 0, SourcePosition(lsn_text(look.flushed)))
        head = extent.last.lsn - 1
        return Observation(
            extent.identity,
            self._position(extent.first.lsn - 1),
            self._position(head),
            extent.written_ms,
            SourcePosition(place_text(head)),
            ahead=max(self._position(head), flushed),
        )

    def check(self, seen: Observation) -> Check:
        """Settings, permissions, slot, publication."""
        address = server_address(self.settings)
        readers = postgres_source(self.settings.address).pace.readers
        found = [Finding("source", error.fault) for error in checks.findings(address, readers=readers)]
        if not found:  # who is not let in, or has no publication, has nothing to be warned of
            told = checks.warnings(address, readers=readers)
            found = [Finding(what, error.fault, "warning") for what, error in told]
        where = f"slot {address.slot}, publication {address.publication}"
        if address.witness is not None:
            where += f", witness {address.witness} ({_kept(address)})"
        return Check("source", f"{where}, log at {seen.head_source}", found)

    def facts(self, table: TableRead, seen: Observation) -> TableFacts | Fault:
        """The statistics' estimate, if there is one; the size on disk; in how many units it would be read."""
        address = server_address(self.settings)
        connection = server.connect(address)
        with connection, server.answering(address, "tell the size of a table"):
            name = shape.sql_name(table.name)
            sizes = connection.execute(_PLAIN_FACTS, (name,)).fetchone()
            if sizes is None:
                return shape.missing(table.name)
            # before the first run nothing is published, and what will be is known all the same
            relation = published.relations_of(connection, address).get(table.name)
            relation = relation or published.to_be_published(connection, table.name)
            if relation is not None:
                apart = leaves.leaves_of(connection, [relation.oid]).get(relation.oid, ())
                fault = shape.fault_in(table, relation, frozenset())
                if fault := fault or leaves.fault_in(table, relation, apart, frozenset()):
                    return fault
            without = next(
                (one.names for one in left_out(connection, address) if one.table == table.name), ()
            )
            copied = self._is_copied(table.name)
            if copied and connection.execute(_MAY_READ, (name,)).fetchone() != (True,):
                return unit_faults.not_permitted(table.name, server.user_of(address)).fault
            tree = connection.execute(_FACTS, (name,)).fetchone()
        rows, size, heap = tree if tree and tree[1] is not None else sizes
        return TableFacts(rows, int(size), units_wanted(int(heap)) if copied else None, without)

    def _is_copied(self, name: TableName) -> bool:
        return all(table.backfill != "none" for table in self.settings.tables if table.name == name)

    def outstanding(self, table: TableName, *, after: Position, seen: Observation) -> Outstanding:
        """What the journal holds behind a position."""
        wanted = table_hash(str(table))
        transactions = changes = size = 0
        for section in self._behind(after.place):
            mine = [one for one in section.changes if any(n >> 32 == wanted for n in one.head.record.schemas)]
            transactions += bool(mine)
            changes += sum(one.head.record.rows for one in mine)
            size += sum(one.head.payload_bytes for one in mine)
        return Outstanding(transactions, changes, size)

    def commits(self, *, after: Position, seen: Observation) -> Sequence[tuple[Position, int]]:
        """One for each section of the journal: its end, and when its first transaction committed."""
        log, found = self._log(), []
        for section in islice((one for one in self._behind(after.place) if one.changes), COMMITS_MAX):
            message = journaled.messages_of(log.payload(section.changes[0].position.place))[0]
            if message[0] == wire.BEGIN:
                found.append((self._position(section.end.lsn - 1), wire.begin(message).committed_ms))
        return found

    def key_counts(self, table: TableRead, seen: Observation) -> tuple[int, int]:
        """Of a key that no primary key guards."""
        address = server_address(self.settings)
        connection = server.connect(address)
        with connection, server.answering(address, "count keys"):
            name = shape.sql_name(table.name)
            columns = connection.execute(_COLUMNS, (name,)).fetchall()
            guarded = {column for column, primary in columns if primary}
            if not table.key or (guarded and guarded <= set(table.key)):
                return 0, 0
            key = ", ".join(map(identifier, table.key))
            any_null = " OR ".join(f"{identifier(column)} IS NULL" for column in table.key)
            repeated = f"SELECT FROM {name} WHERE NOT ({any_null}) GROUP BY {key} HAVING count(*) > 1"
            row = connection.execute(
                f"SELECT (SELECT count(*) FROM {name} WHERE {any_null}), "
                f"(SELECT count(*) FROM ({repeated}) r)".encode()
            ).fetchone()
        assert row is not None
        return int(row[0]), int(row[1])

    # --- leaves ---------------------------------------------------------------------------------------

    def _log(self) -> CapturedLog:
        return CapturedLog(open_reader(journal_of(self.settings)))

    def _extent(self) -> Extent | None:
        try:
            return self._log().extent()
        except TruecutError as error:
            if error.fault.code == NO_LOG:
                return None
            raise

    def _behind(self, after: int) -> Iterator[Section]:
        extent, log = self._extent(), self._log()
        if extent is not None:
            yield from log.sections(extent, log.before(extent, max(after + 1, extent.first.lsn)))

    def _position(self, place: int) -> Position:
        return Position(self.generation, place)


def _kept(address: Address) -> str:
    """How much of its log the server keeps for the witness."""
    try:
        with server.connect(address) as connection:
            slot = server.witness_slot(connection, address)
    except TruecutError:  # told of by whatever else is asked
        return "not known"
    return "to be made" if slot is None else f"for it the server keeps {slot.retained_bytes:,} bytes of log"


def _look(address: Address) -> Look:
    identity = server.identify(address)
    connection = server.connect(address)
    with connection:
        return server.look(connection, address, identity)


def standing(settings: SourceSettings) -> Standing | None:
    """What the server says of our slot; None where there is none."""
    slot = _look(server_address(settings)).slot
    return None if slot is None else Standing(slot.confirmed, slot.retained_bytes, slot.safe_bytes)
