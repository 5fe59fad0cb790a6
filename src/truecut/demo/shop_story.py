"""The story of the shop: a live PostgreSQL into a lake and another PostgreSQL, killed, resumed, verified,
tampered with, repaired, compared.

The run that is killed is a process of its own. What takes over runs in this one, so that whatever verifies
afterwards finds a Spark that is warm; its JVM starts while the first run is still at work.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truecut.config.load import load
from truecut.config.settings import Pipeline
from truecut.demo.server import running_server
from truecut.demo.shop import LINES, Compared, Customers, Shop
from truecut.demo.watched import Run, differs, done
from truecut.model.position import Position

if TYPE_CHECKING:
    from truecut.runtime.checked import Checked
    from truecut.runtime.repair import Mended
    from truecut.runtime.verification import Verification
    from truecut.spark.session import Starting

BringUp = Callable[[Pipeline, Position], None]  # a run until all sinks stand exactly there
_CROSS = "[red]✗[/red]"


def tell(folder: Path, *, rows: int, seconds: int, bring_up: BringUp) -> None:
    """Run the demo. Raises when a table at a sink differs from the source's."""
    console = Console(highlight=False, soft_wrap=True)
    started = time.monotonic()
    with running_server() as dsn:
        shop = Shop(folder, dsn)
        transactions = live(console, shop, orders=rows // (1 + LINES), seconds=seconds, bring_up=bring_up)
        results = shop.compare()
    console.print(_verdict(results))
    if not all(result.equal for result in results):
        raise differs("a table")
    total = sum(result.rows for result in results)
    done(
        console,
        f"{total:,} rows at 2 sinks after {transactions:,} transactions and a kill -9: equal, by plain SQL"
        f" ({time.monotonic() - started:.0f} s)",
    )
    console.print(f"\nThe certificate, explained: [bold]{certificate_page(shop)}[/bold]")
    console.print(f"Look around: [bold]{folder}[/bold] (pipeline.yaml is the whole configuration)")
    console.print("Next: [bold]truecut init --dsn postgresql://…[/bold]")


def live(console: Console, shop: Shop, *, orders: int, seconds: int, bring_up: BringUp) -> int:
    """A shop is opened, copied, killed, resumed, verified, tampered with and repaired; how many transactions
    its customers have made."""
    shop.make(orders=orders)
    customers = Customers(shop, orders=orders)
    customers.start()
    rows = orders * (1 + LINES)
    done(console, f"PostgreSQL 18 started, {rows:,} rows; customers order, change and cancel")
    with _spark(shop) as start:
        try:
            _first_life(console, shop, customers, seconds=seconds, while_it_flows=start)
            time.sleep(seconds / 4)  # nobody carries what they do now
        finally:
            customers.stop()
        _second_life(console, shop, start(), bring_up)
    return customers.transactions


def _first_life(
    console: Console,
    shop: Shop,
    customers: Customers,
    *,
    seconds: int,
    while_it_flows: Callable[[], object],
) -> None:
    """Until it is killed without a warning, in the middle of its work."""
    with Run(shop.file, console, what="sink") as run:
        begun, before = time.monotonic(), customers.transactions
        run.watch("copying every table, while orders keep changing", run.all_seeded)
        passed = time.monotonic() - begun
        pace = (customers.transactions - before) / passed
        aside = f"nothing locked: {pace:,.0f} transactions/s went on"
        done(console, f"backfill {passed:.1f} s (Spark's start included), {aside}")
        while_it_flows()
        deadline = time.monotonic() + seconds / 2
        run.watch("changes flow", lambda _: time.monotonic() > deadline)
        run.kill()
    console.print(f"{_CROSS} killed -9 in the middle of it; customers go on")


def _second_life(console: Console, shop: Shop, starting: Starting, bring_up: BringUp) -> None:
    """The sinks are taken over and brought to one place of the server, where it is read itself: the two are
    compared there, while its snapshot is held."""
    from truecut.runtime.repair import verified
    from truecut.runtime.settled_tables import settled
    from truecut.runtime.verification import Verification, reread_of
    from truecut.spark.session import open_session

    pipeline = settled(load(shop.file, environ=os.environ))
    tables = frozenset(str(table.name) for table in pipeline.tables)
    sinks = frozenset(sink.name for sink in pipeline.sinks)
    starting.session()
    with reread_of(pipeline) as reread, console.status("resuming, then verifying") as status:
        assert reread.frontier is not None
        bring_up(pipeline, reread.frontier)
        done(console, "resumed from the cursors in the sinks themselves, nothing copied again")
        spark = open_session(app=pipeline.name, master=None, conf={}, scratch=pipeline.state)
        asked = Verification(pipeline, spark, reread, tables, sinks, on_step=status.update)
        checks = verified(asked, "no")[0]
        _require_equal(checks)
        place, levels = f"…{str(reread.frontier)[-7:]}", ", ".join(sorted({one.level for one in checks}))
        done(console, f"verified at {place}: source and copies are what is certified ({levels})")
        _tampered(console, shop, asked)
        spark.stop()  # whoever ends the demo before ends the JVM, too: it could not be asked any more


def _tampered(console: Console, shop: Shop, asked: Verification) -> None:
    from truecut.runtime.repair import verified

    console.print(f"[yellow]![/yellow] changed public.orders id={shop.tamper()} in the lake behind our back")
    checks, mended = verified(asked, "carry out")
    for one in mended:
        console.print(f"{_CROSS} verify: {one.table} at {one.sink}: {_keys(one)} differs")
    _require_equal(checks)
    done(console, f"repaired {sum(one.difference.rows for one in mended)} row, verified")


def _keys(mended: Mended) -> str:
    keys = [told["key"] or {} for told in mended.keys]
    return "; ".join(", ".join(f"{name}={value}" for name, value in key.items()) for key in keys)


def _require_equal(checks: list[Checked]) -> None:
    """Each with its source and its copies, at one place."""
    if {check.level for check in checks} != {"V4", "V5"} or any(one.verdict != "pass" for one in checks):
        raise differs("a table")


def certificate_page(shop: Shop) -> Path:
    """The last certificate, for people."""
    from truecut.certificate.issue import certificate_paths, read_issued, with_units
    from truecut.certificate.words import page

    folder = shop.folder / "certificates"
    found = certificate_paths(folder)
    target = shop.folder / "certificate.html"
    target.write_text(page(with_units(folder, read_issued(found[-1])), certificates=len(found)))
    return target


@contextmanager
def _spark(shop: Shop) -> Iterator[Callable[[], Starting]]:
    """Started by the first call, in the background; gone at the end."""
    from truecut.spark.session import Starting

    begun: list[Starting] = []

    def start() -> Starting:
        if not begun:
            begun.append(Starting.of(load(shop.file, environ=os.environ)))
        return begun[0]

    try:
        yield start
    finally:
        for one in begun:
            one.end()


def _verdict(results: list[Compared]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("compared", ""):
        table.add_column(name)
    for name in ("rows", "missing", "extra"):
        table.add_column(name, justify="right")
    table.add_column("")
    for one in results:
        verdict = Text("✓ equal", style="green") if one.equal else Text("✗ differs", style="red")
        table.add_row(one.sink, one.table, f"{one.rows:,}", f"{one.missing:,}", f"{one.extra:,}", verdict)
    return table
