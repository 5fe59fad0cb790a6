"""What can be found beforehand: whether a server is fit for capture, each finding with the SQL that mends it.

Asks, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from truecut.errors import TruecutError
from truecut.model.table import TableName
from truecut.sources.postgres import faults, server
from truecut.sources.postgres.address import READERS
from truecut.sources.postgres.generated import LeftOut, left_out
from truecut.sources.postgres.server import Address, Connection
from truecut.sources.postgres.sessions import shortages

_SETTINGS = """
SELECT current_setting('wal_level'), current_setting('max_replication_slots')::int,
  (SELECT count(*) FROM pg_replication_slots), current_setting('max_wal_senders')::int,
  (SELECT count(*) FROM pg_stat_replication), r.rolreplication OR r.rolsuper, r.rolname, pg_is_in_recovery(),
  has_database_privilege(current_database(), 'CREATE'), r.rolsuper
FROM pg_roles r WHERE r.rolname = current_user
"""
_SLOT = """
SELECT plugin, database = current_database(), active_pid, to_jsonb(s) ->> 'two_phase' = 'true',
  a.application_name
FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid WHERE slot_name = %s
"""
_PUBLISHED = "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s"
_IS_THERE = "SELECT 1 FROM pg_publication WHERE pubname = %s"


def findings(address: Address, *, readers: int = READERS) -> list[TruecutError]:
    """Everything that would stop a capture, or leave tables out of it; [] is fit. `readers`: of units."""
    try:
        connection = server.connect(address)
    except TruecutError as error:
        return [error]
    with connection, server.asking(connection, address, "tell its settings"):
        limits = shortages(connection, address, readers=readers)
        few = [faults.few_sessions(one) for one in limits if one.always]
        return [*_of_server(connection, address), *few, *_of_publication(connection, address)]


def warnings(address: Address, *, readers: int = READERS) -> list[tuple[str, TruecutError]]:
    """What a run can do without, or may have to wait for: of the source, or of a table."""
    connection = server.connect(address)
    with connection:
        found = left_out(connection, address)
        few = [one for one in shortages(connection, address, readers=readers) if not one.always]
    tables = [(str(one.table), _left_out(address.publication, one)) for one in found]
    return [*(("source", faults.few_sessions(one)) for one in few), *tables]


def _left_out(publication: str, one: LeftOut) -> TruecutError:
    return faults.generated_left_out(publication, str(one.table), stored=one.stored, never=one.never)


def _of_server(connection: Connection, address: Address) -> Iterator[TruecutError]:
    row = connection.execute(_SETTINGS).fetchone() or ()
    level, slots_max, slots, senders_max, senders, permitted, user, standby, *_ = row
    if standby:
        yield faults.standby()
        return
    if level != "logical":
        yield faults.wal_level(level)
    if not permitted:
        yield faults.not_permitted(user)
    ours = connection.execute(_SLOT, (address.slot,)).fetchone()
    if ours is not None:
        yield from _of_slot(address, *ours)
    elif slots >= slots_max:
        yield faults.no_slot_left(slots_max)
    if address.witness is not None:
        yield from _of_witness(connection, address, room=slots_max - slots - (ours is None), most=slots_max)
    if senders >= senders_max and (ours is None or ours[2] is None):
        yield faults.no_sender_left(senders_max)


def _of_slot(
    address: Address, plugin: str | None, here: bool | None, pid: int | None, two_phase: bool, who: str | None
) -> Iterator[TruecutError]:
    if plugin != server.PLUGIN:
        yield faults.wrong_slot(address.slot, f"has the plugin {plugin}, not {server.PLUGIN}")
    elif not here:
        yield faults.wrong_slot(address.slot, "is of another database")
    elif two_phase:
        yield faults.wrong_slot(address.slot, faults.TWO_PHASE)
    elif pid is not None and who != address.application:
        yield faults.slot_in_use(address.slot, pid)


def _of_witness(connection: Connection, address: Address, *, room: int, most: int) -> Iterator[TruecutError]:
    """A second slot, which nobody reads but whoever verifies."""
    assert address.witness is not None
    found = connection.execute(_SLOT, (address.witness,)).fetchone()
    if found is None:
        if room <= 0:
            yield faults.no_slot_left(most)
        return
    plugin, here, _, two_phase, _ = found
    if plugin != server.PLUGIN:
        yield faults.wrong_slot(address.witness, f"has the plugin {plugin}, not {server.PLUGIN}")
    elif not here:
        yield faults.wrong_slot(address.witness, "is of another database")
    elif two_phase:
        yield faults.wrong_slot(address.witness, faults.TWO_PHASE)


def _of_publication(connection: Connection, address: Address) -> Iterator[TruecutError]:
    if connection.execute(_IS_THERE, (address.publication,)).fetchone() is None:
        yield from _missing_publication(connection, address)
        return
    if operations := server.kept_back(connection, address):
        yield faults.kept_back(address.publication, operations)
    found = {TableName(*row) for row in connection.execute(_PUBLISHED, (address.publication,)).fetchall()}
    found |= server.to_be_published(connection, address)
    for table in address.tables:
        if table not in found:
            name = f"{faults.identifier(table.schema)}.{faults.identifier(table.table)}"
            yield faults.not_published(address.publication, str(table), name)


def _missing_publication(connection: Connection, address: Address) -> Iterator[TruecutError]:
    """We make it ourselves where we may: one for all tables is a superuser's to make."""
    row = connection.execute(_SETTINGS).fetchone() or ()
    may_create, superuser = row[-2:]
    if superuser or (may_create and address.tables):
        return
    what = server.published(address.tables, connection.info.server_version)
    yield faults.no_publication(address.publication, what, "no permission")
