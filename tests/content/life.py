"""One table's life by chance, from its first row on, and its copies at every poll.

Every statement is noted, so that a life that shows a difference can be lived again by hand. A copy is the
source, bit for bit, or is held for a reason that the docs give for what was done to the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import duckdb
from hypothesis import strategies as st

from tests.content import drawn
from tests.content.drawn import Kind
from tests.content.exact import Row, patterns
from tests.content.line import Line
from tests.content.mirrors import TABLE, Mirrors
from truecut.lake import LakeAddress, attach_sql, connect, lake_of

POOL = 8  # rows that there may be
RENAMED, OTHERWISE, UNREADABLE = "TC3012", "TC3014", "TC3027"
MIXED_UP, NOT_TAKEN = "TC2027", "TC3028"
EXPIRED, DAMAGED, DISPLACED, REVALUED = "TC2010", "TC2011", "TC3025", "TC3033"  # gaps
MIRROR, LOG = "a", "log"
THEMES = ("anything", "types", "columns", "routes", "upkeep")

Choose = Any  # hypothesis' `data.draw`


class Life:
    """`t` has a key, a route, a number `n` by which statements name rows, and columns that come and go."""

    def __init__(self, world: Mirrors, draw: Choose, key: Sequence[Kind], route: Kind, theme: str) -> None:
        self.world, self.draw, self.theme = world, draw, theme
        self.source = lake_of(world.pipeline().source.address)
        self.key = {f"k{n}": kind for n, kind in enumerate(key)}
        self.route = route
        self.columns: dict[str, Kind] = {}
        self.log: list[str] = []
        self.live: set[int] = set()
        self.number = 0
        self.gathered: list[str] | None = None  # statements of a transaction that is being made
        self.allowed: set[str] = set()  # reasons to hold a copy, by what was done since the last poll
        self.connection = connect()
        self.connection.execute("SET TimeZone = 'UTC'")
        self.keys = self._distinct_keys()
        self.routes = [draw(drawn.values(route, nulls=False)) for _ in range(2)]
        self.name = "t"
        self.hidden = False  # whether a column hides, or has hidden, by what a file's rows are told apart
        self.stays: set[str] = set()  # reasons that a seed does not remove
        self.void = ""  # what an append table holds up to here counts no more

    def begin(self) -> None:
        """Make the table, which may have a past, the pipeline and the first copies."""
        kinds_of_theme = drawn.scalars(drawn.CHANGED_TWICE) if self.theme == "types" else drawn.kinds()
        self.columns = {
            self._name(): kind for kind in self.draw(st.lists(kinds_of_theme, min_size=1, max_size=3))
        }
        kinds = {**self.key, "tenant": self.route, "n": Kind("INTEGER"), **self.columns}
        self._run(f"CREATE TABLE lake.t ({', '.join(f'{name} {kind.sql}' for name, kind in kinds.items())})")
        self.insert()
        self._steps(at_most=2)
        self.allowed.clear()
        self.line = Line(self.world.pipeline())
        self.sinks = [MIRROR, LOG]
        for sink in (MIRROR, LOG):
            self._again(sink)
        self.compare()

    # --- rows -----------------------------------------------------------------------------------------

    def insert(self) -> list[str]:
        """Few rows or many."""
        free = [n for n in range(len(self.keys)) if n not in self.live]
        count = self.draw(st.sampled_from([1, 2, 4, POOL]))
        if not free:
            return []
        rows = ", ".join(self._row(n) for n in free[:count])
        names = ", ".join([*self.key, "tenant", "n", *self.columns])
        self.live.update(free[:count])
        return self._run(f"INSERT INTO lake.{self.name} ({names}) VALUES {rows}")

    def update(self) -> list[str]:
        """New values, in some column or another."""
        some = self._some()
        if not some or not self.columns:
            return []
        name = self.draw(st.sampled_from(sorted(self.columns)))
        value = self.draw(drawn.values(self.columns[name]))
        return self._run(f"UPDATE lake.{self.name} SET {name} = {value} WHERE n IN ({_list(some)})")

    def move(self) -> list[str]:
        """Some rows get another route."""
        some = self._some()
        return (
            self._run(f"UPDATE lake.{self.name} SET tenant = {self._tenant()} WHERE n IN ({_list(some)})")
            if some
            else []
        )

    def rekey(self) -> list[str]:
        """A row gets another key."""
        some, free = self._some(), [n for n in range(len(self.keys)) if n not in self.live]
        if not some or not free:
            return []
        old, new = some[0], free[0]
        self.live = (self.live - {old}) | {new}
        sets = ", ".join(f"{name} = {value}" for name, value in zip(self.key, self.keys[new], strict=True))
        return self._run(f"UPDATE lake.{self.name} SET {sets}, n = {new} WHERE n = {old}")

    def delete(self) -> list[str]:
        some = self._some()
        self.live.difference_update(some)
        return self._run(f"DELETE FROM lake.{self.name} WHERE n IN ({_list(some)})") if some else []

    def clear(self) -> list[str]:
        """All rows go at once."""
        self.live.clear()
        return self._run(self.draw(st.sampled_from(["DELETE FROM", "TRUNCATE"])) + f" lake.{self.name}")

    def upsert(self) -> list[str]:
        """Rows that are there, perhaps, in one statement with new ones."""
        some = sorted(self.draw(st.sets(st.sampled_from(range(len(self.keys))), min_size=1, max_size=3)))
        names = [*self.key, "tenant", "n", *self.columns]
        sets = ", ".join(f"{name} = s.{name}" for name in ["tenant", *self.columns])
        self.live.update(some)
        return self._run(
            f"MERGE INTO lake.{self.name} AS t USING (VALUES {', '.join(map(self._row, some))}) "
            f"AS s({', '.join(names)}) ON t.n = s.n WHEN MATCHED THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(names)}) VALUES ({', '.join(f's.{n}' for n in names)})"
        )

    def together(self) -> list[str]:
        """Several statements in one transaction."""
        steps = [self.insert, self.update, self.move, self.rekey, self.delete, self.clear, self.upsert]
        self.gathered = []
        for step in self.draw(st.lists(st.sampled_from(steps), min_size=2, max_size=4)):
            step()
        statements, self.gathered = self.gathered, None
        return self._run("BEGIN", *statements, "COMMIT") if statements else []

    # --- columns --------------------------------------------------------------------------------------

    def add(self) -> list[str]:
        """A new column, perhaps with a default."""
        return self._add(self._name())

    def _add(self, name: str) -> list[str]:
        kind = self.draw(drawn.kinds())
        default = ""
        if not kind.parts and self.draw(st.booleans()):
            default = f" DEFAULT {self.draw(drawn.values(kind, nulls=False))}"
        if self._alter(f"ADD COLUMN {name} {kind.sql}{default}"):
            self.columns[name] = kind
        return []

    def drop(self) -> list[str]:
        name = self._column()
        if name and self._alter(f"DROP COLUMN {name}"):
            del self.columns[name]
        return []

    def forbid_null(self) -> list[str]:
        """Or allow it again. Rows that have one are refused, or the constraint is."""
        name = self._column()
        if name:
            self._alter(f"ALTER {name} {self.draw(st.sampled_from(['SET', 'SET', 'DROP']))} NOT NULL")
        return []

    def default(self) -> list[str]:
        """Another one, for rows to come; one of them takes it."""
        name, free = self._column(), [n for n in range(len(self.keys)) if n not in self.live]
        if name is None or self.columns[name].parts or not free:
            return []
        if self._alter(f"ALTER {name} SET DEFAULT {self.draw(drawn.values(self.columns[name]))}"):
            given = {
                other: self.draw(drawn.values(kind)) for other, kind in self.columns.items() if other != name
            }
            names = ", ".join([*self.key, "tenant", "n", *given])
            row = ", ".join([*self.keys[free[0]], self._tenant(), str(free[0]), *given.values()])
            self.live.add(free[0])
            self._run(f"INSERT INTO lake.{self.name} ({names}) VALUES ({row})")
        return []

    def drop_and_add(self) -> list[str]:
        """Another column under the same name."""
        name = self._column()
        if name and self._alter(f"DROP COLUMN {name}"):
            del self.columns[name]
            self._add(name)
        return []

    def rename(self) -> list[str]:
        name, new = self._column(), self._name()
        if name and self._alter(f"RENAME COLUMN {name} TO {new}", RENAMED):
            self.columns[new] = self.columns.pop(name)
        return []

    def swap(self) -> list[str]:
        """Two columns change their names."""
        if len(self.columns) < 2:
            return []
        one, other = sorted(self.columns)[:2]
        for old, new in ((one, "swapped"), (other, one), ("swapped", other)):
            assert self._alter(f"RENAME COLUMN {old} TO {new}", RENAMED)
        self.columns[one], self.columns[other] = self.columns[other], self.columns[one]
        return []

    def widen(self) -> list[str]:
        """A wider type, also inside a nested column."""
        name = self._column()
        if name is None:
            return []
        wider = self._wider(self.columns[name])
        if wider != self.columns[name] and self._alter(f"ALTER {name} SET DATA TYPE {wider.sql}"):
            if self.columns[name].sql.count("BOOLEAN") != wider.sql.count("BOOLEAN"):
                self.allowed |= {OTHERWISE, UNREADABLE}
            self._may_not_be_written(wider)
            if not drawn.only_grows(self.columns[name], wider):
                self.allowed.add(REVALUED)
            self.columns[name] = wider
        return []

    def respell(self) -> list[str]:
        """A wider type for the route or a part of the key, which may spell it otherwise."""
        name = self.draw(st.sampled_from(["tenant", "tenant", *self.key]))
        kind = self.route if name == "tenant" else self.key[name]
        wider = self._wider(kind)
        kinds = {part: wider if part == name else known for part, known in self.key.items()}
        if wider == kind or len(self._distinct(self.keys, kinds)) < len(self.keys):
            return []
        if self._alter(f"ALTER {name} SET DATA TYPE {wider.sql}", DISPLACED):
            self._may_not_be_written(wider)
            if name == "tenant":
                self.route = wider
            else:
                self.key[name] = wider
        return []

    def inside(self) -> list[str]:
        """A field of a struct comes, goes, or gets another name."""
        name = self._column()
        found = None if name is None else _struct(self.columns[name], name)
        if name is None or found is None:
            return []
        path, struct = found
        fields = dict(struct.parts)
        what = self.draw(st.sampled_from(["add", "drop", "rename"]))
        first = next(iter(fields))
        if what == "add":
            new, kind = f"g{self.number}", self.draw(drawn.scalars())
            self.number += 1
            default = (
                f" DEFAULT {self.draw(drawn.values(kind, nulls=False))}" if self.draw(st.booleans()) else ""
            )
            done, fields = self._alter(f"ADD COLUMN {path}.{new} {kind.sql}{default}"), {**fields, new: kind}
        elif what == "drop":
            gone = self.draw(st.sampled_from(sorted(fields)))
            done = len(fields) > 1 and self._alter(f"DROP COLUMN {path}.{gone}", OTHERWISE)
            fields.pop(gone)
        else:
            new = f"g{self.number}"
            self.number += 1
            done = self._alter(f"RENAME COLUMN {path}.{first} TO {new}", RENAMED)
            fields = {new if field == first else field: kind for field, kind in fields.items()}
        if done:
            self.columns[name] = _with(self.columns[name], struct, struct.with_parts(fields))
        return []

    def reroute(self) -> list[str]:
        """The route column goes and comes back: every row belongs elsewhere."""
        default = self.draw(st.sampled_from(self.routes))
        done = self._run(
            "BEGIN",
            f"ALTER TABLE lake.{self.name} DROP COLUMN tenant",
            f"ALTER TABLE lake.{self.name} ADD COLUMN tenant {self.route.sql} DEFAULT {default}",
            "COMMIT",
        )
        self.allowed.update([DISPLACED] if done else [])
        return done

    def there_and_back(self) -> list[str]:
        """Another name for a while, with rows."""
        self._run("ALTER TABLE lake.t RENAME TO away")
        self.name = "away"
        self.draw(st.sampled_from([self.insert, self.update, self.delete]))()
        self.draw(st.sampled_from(self.upkeep))()
        self.name = "t"
        return self._run("ALTER TABLE lake.away RENAME TO t")

    # --- maintenance ----------------------------------------------------------------------------------

    def flush(self) -> list[str]:
        return self._maintain("CALL ducklake_flush_inlined_data('lake')")

    def merge(self) -> list[str]:
        return self._maintain("CALL ducklake_merge_adjacent_files('lake')")

    def rewrite(self) -> list[str]:
        return self._maintain("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)")

    def expire(self) -> list[str]:
        """Snapshots go, perhaps those where the copies stand."""
        ids = [row[0] for row in self._rows("SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1")]
        going = ids[: self.draw(st.integers(0, len(ids) - 1))]
        if not going:
            return []
        self.allowed.add(EXPIRED)
        return self._run(f"CALL ducklake_expire_snapshots('lake', versions => [{_list(going)}])")

    def cleanup(self) -> list[str]:
        return self._run("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")

    @property
    def upkeep(self) -> list[Any]:
        return [self.flush, self.merge, self.rewrite, self.expire, self.cleanup]

    @property
    def steps(self) -> list[Any]:
        """What is done to the table, the likelier the more often it stands here."""
        rows = [self.insert, self.update, self.move, self.rekey, self.delete]
        several = [self.insert, self.upsert, self.clear, self.together]
        columns = [self.add, self.drop, self.drop_and_add, self.rename, self.swap, self.inside]
        if self.theme == "types":
            return [*rows, *[self.widen] * 5, self.reroute]
        if self.theme == "columns":
            return [*rows, *columns, self.inside, self.drop_and_add]
        if self.theme == "routes":
            return [*rows, self.move, self.reroute, *[self.respell] * 3]
        if self.theme == "upkeep":
            return [*rows, *several, *self.upkeep, self.flush, self.rewrite, self.there_and_back]
        changes = [
            *columns,
            self.forbid_null,
            self.default,
            self.widen,
            self.widen,
            self.inside,
            self.reroute,
            self.respell,
        ]
        return [*rows, *rows, *several, *changes, self.there_and_back, *self.upkeep]

    # --- polls ----------------------------------------------------------------------------------------

    def live_on(self) -> None:
        """A few steps, then a poll."""
        self._steps(at_least=1, at_most=4)
        self.poll()

    def _steps(self, *, at_least: int = 0, at_most: int) -> None:
        for step in self.draw(st.lists(st.sampled_from(self.steps), min_size=at_least, max_size=at_most)):
            step()

    def poll(self) -> None:
        """Each copy goes on, is seeded anew after a gap, or is held for a reason that the docs give."""
        self.log.append("-- poll")
        readable = self._wanted("true") is not None
        lost = self.line.stream(self.sinks)
        for sink in list(self.sinks):
            code = lost.get(sink) or self.line.held(sink)
            if code is not None:
                self.log.append(f"-- {sink}: {code}")
                true = code in self.allowed | self.stays or (code == UNREADABLE and not readable)
                assert true, f"held for {code}"
                self._again(sink)
        self.allowed.clear()
        self.compare()

    def _again(self, sink: str) -> None:
        """A mirror is seeded anew; an append table, too, where somebody resumes it."""
        self.line.seed(sink)
        code = self.line.held(sink)
        if code is not None:
            true = code in self.stays or (code == UNREADABLE and self._wanted("true") is None)
            # Known: an append table does not follow a renamed column, by a seed either.
            assert true or (sink == LOG and code in (RENAMED, OTHERWISE)), f"seed: held for {code}"
            self.sinks.remove(sink)
        elif sink == LOG and not self._rows(f"SELECT n FROM {TABLE} LIMIT 1"):
            copy = self.line.copy(
                sink
            )  # of an empty table there are no `read` rows, which would begin it anew
            self.void = str(copy.at) if copy is not None else ""

    def compare(self) -> None:
        """Bit for bit, in columns of the same types."""
        names = [*self.key, "tenant", "n", *self.columns]
        for sink in self.sinks:
            where = (
                "true" if sink == LOG else f"tenant::VARCHAR = {drawn.text(str(self.world.routes[MIRROR]))}"
            )
            wanted = self._wanted(where)
            if wanted is None:
                continue
            self._retired_are_empty(sink, names)
            held = self._log(names) if sink == LOG else self._at_sink(sink, names)
            assert held[0] == wanted[0], f"{sink}: types differ"
            assert held[1] == wanted[1], (
                f"{sink}: not at the source, not at the sink: {_unlike(held[1], wanted[1])}"
            )

    def _may_not_be_written(self, kind: Kind) -> None:
        """A DATE may be infinite, and a TIMESTAMP_S of a Parquet file may not."""
        if "TIMESTAMP_S" in kind.sql:
            self.stays.add(NOT_TAKEN)

    # --- leaves ---------------------------------------------------------------------------------------

    def _wanted(self, where: str) -> tuple[list[str], list[Row]] | None:
        """The source as plain DuckDB reads it; None where it cannot."""
        names = [*self.key, "tenant", "n", *self.columns]
        try:
            with self._attached(self.source) as connection:
                return self._read(connection, f"SELECT {', '.join(names)} FROM {TABLE} WHERE {where}")
        except (duckdb.InvalidInputException, duckdb.ConversionException, duckdb.InternalException):
            return None

    def _retired_are_empty(self, sink: str, names: Sequence[str]) -> None:
        """What the source has dropped stays at the sink without a value."""
        with self._attached(self._address(sink)) as connection:
            found = connection.execute(f"SELECT column_name FROM (DESCRIBE {TABLE})").fetchall()
            gone = [name for (name,) in found if name not in names and not name.startswith("_truecut_")]
            for name in gone:
                values = connection.execute(f'SELECT count("{name}") FROM {TABLE}').fetchone()
                assert values == (0,), f"{sink}: {name} was dropped and still has values"

    def _at_sink(self, sink: str, names: Sequence[str]) -> tuple[list[str], list[Row]]:
        with self._attached(self._address(sink)) as connection:
            return self._read(connection, f"SELECT {', '.join(names)} FROM {TABLE}")

    def _log(self, names: Sequence[str]) -> tuple[list[str], list[Row]]:
        """What the changes of an append table make, one after another; `read` rows begin it anew."""
        wanted = ", ".join(["_truecut_op", "_truecut_position", *names])
        query = f"SELECT {wanted} FROM {TABLE} ORDER BY _truecut_position, _truecut_seq"
        with self._attached(self._address(LOG)) as connection:
            table = connection.execute(query).to_arrow_table()
            types = [
                t
                for _, t in connection.execute(
                    f"SELECT column_name, column_type FROM (DESCRIBE {query})"
                ).fetchall()
            ][2:]
        columns = [self._patterns(column) for column in table.columns]
        state: dict[Any, Row] = {}
        begun = None
        for op, position, *row in zip(*columns, strict=True):
            if position <= self.void:
                continue
            if op == "read" and begun != position:
                state, begun = {}, position
            number = row[len(self.key) + 1]
            if op == "delete":
                assert state.pop(number, None) is not None, "a delete of what is not there"
            else:
                assert op == "update" or number not in state, "an insert of what is there"
                state[number] = tuple(row)
        return types, sorted(state.values(), key=repr)

    def _read(self, connection: duckdb.DuckDBPyConnection, query: str) -> tuple[list[str], list[Row]]:
        types = [
            row[1]
            for row in connection.execute(
                f"SELECT column_name, column_type FROM (DESCRIBE {query})"
            ).fetchall()
        ]
        table = connection.execute(query).to_arrow_table()
        return types, sorted(zip(*(self._patterns(c) for c in table.columns), strict=True), key=repr)

    def _patterns(self, column: Any) -> list[Any]:
        return patterns(column.combine_chunks())

    def _run(self, *statements: str) -> list[str]:
        """A statement that the extension refuses leaves everything as it was."""
        if self.gathered is not None:
            self.gathered += statements
            return list(statements)
        self.log += statements
        try:
            with self._attached(self.source) as connection:
                for statement in statements:
                    connection.execute(statement)
            return list(statements)
        except duckdb.Error as error:
            self.log.append(f"-- refused: {str(error)[:80]!r}")
        self._look()
        return []

    def _look(self) -> None:
        self.live = {row[0] for row in self._rows(f"SELECT n FROM lake.{self.name}")}

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._attached(self.source) as connection:
            return connection.execute(query).fetchall()

    @contextmanager
    def _attached(self, address: LakeAddress) -> Iterator[duckdb.DuckDBPyConnection]:
        """Plain DuckDB, for a moment."""
        self.connection.execute(attach_sql(address, "lake"))
        try:
            yield self.connection
        finally:
            with suppress(duckdb.Error):
                self.connection.execute("ROLLBACK")
            self.connection.execute("DETACH lake")

    def _address(self, sink: str) -> LakeAddress:
        return next(lake_of(one.address) for one in self.line.pipeline.sinks if one.name == sink)

    def _alter(self, clause: str, *codes: str) -> bool:
        done = bool(self._run(f"ALTER TABLE lake.{self.name} {clause}"))
        if done:
            self.allowed.update(codes)
        return done

    def _maintain(self, statement: str) -> list[str]:
        if self.hidden:
            self.allowed.add(DAMAGED)
        return self._run(statement)

    def _wider(self, kind: Kind) -> Kind:
        if kind.parts:
            inner = {name: part if name == "key" else self._wider(part) for name, part in kind.parts}
            return kind.with_parts(inner)
        wide = drawn.WIDER.get(kind.name)
        return Kind(self.draw(st.sampled_from(wide)), (), kind.minus, kind.payload) if wide else kind

    def _row(self, n: int) -> str:
        values = [self.draw(drawn.values(kind)) for kind in self.columns.values()]
        return f"({', '.join([*self.keys[n], self._tenant(), str(n), *values])})"

    def _tenant(self) -> str:
        return str(self.draw(st.sampled_from([*self.routes, f"CAST(NULL AS {self.route.sql})"])))

    def _some(self) -> list[int]:
        return sorted(self.draw(st.sets(st.sampled_from(sorted(self.live)), max_size=3))) if self.live else []

    def _column(self) -> str | None:
        return str(self.draw(st.sampled_from(sorted(self.columns)))) if self.columns else None

    def _name(self) -> str:
        """A new one; now and then one that the extension uses, too."""
        self.number += 1
        odd = ["filename", "rowid", "snapshot_id"] if self.number == 2 else []
        name = str(self.draw(st.sampled_from([f"c{self.number}", *odd])))
        self.hidden |= name == "filename"
        if name == "rowid" and self.source.kind == "sqlite":
            self.stays.add(MIXED_UP)
        return name

    def _distinct_keys(self) -> list[tuple[str, ...]]:
        """Keys that DuckDB itself tells apart."""
        drawn_keys = [
            tuple(self.draw(drawn.values(kind, nulls=False)) for kind in self.key.values())
            for _ in range(POOL)
        ]
        return [drawn_keys[n] for n in self._distinct(drawn_keys, self.key)]

    def _distinct(self, keys: Sequence[tuple[str, ...]], kinds: Mapping[str, Kind]) -> list[int]:
        """The first of each, in these types."""
        casts = [[f"CAST({v} AS {k.sql})" for v, k in zip(key, kinds.values(), strict=True)] for key in keys]
        rows = ", ".join(f"({n}, {', '.join(cast)})" for n, cast in enumerate(casts))
        names = ", ".join(kinds)
        query = f"SELECT min(n) FROM (VALUES {rows}) v(n, {names}) GROUP BY {names} ORDER BY 1"
        try:
            return [row[0] for row in self.connection.execute(query).fetchall()]
        except duckdb.ConversionException:
            return []  # not every one is a value of that type


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _unlike(held: list[Row], wanted: list[Row]) -> tuple[list[Row], list[Row]]:
    return [row for row in held if row not in wanted], [row for row in wanted if row not in held]


def _struct(kind: Kind, path: str) -> tuple[str, Kind] | None:
    """The first struct inside, and its path."""
    if kind.name == "STRUCT":
        return path, kind
    for name, part in kind.parts:
        found = _struct(part, f"{path}.{name}")
        if found is not None:
            return found
    return None


def _with(kind: Kind, old: Kind, new: Kind) -> Kind:
    if kind is old:
        return new
    return kind.with_parts({name: _with(part, old, new) for name, part in kind.parts})
