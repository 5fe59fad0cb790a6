"""The story of the shop: a live PostgreSQL into a lake and another PostgreSQL, killed, resumed, compared."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truecut.demo.server import running_server
from truecut.demo.shop import LINES, Compared, Customers, Shop
from truecut.demo.watched import Run, differs, done, table_of


def tell(folder: Path, *, rows: int, seconds: int) -> None:
    """Run the demo. Raises when a table at a sink differs from the source's."""
    console = Console(highlight=False, soft_wrap=True)
    started = time.monotonic()
    with running_server() as dsn:
        shop = Shop(folder, dsn)
        transactions = live(console, shop, orders=rows // (1 + LINES), seconds=seconds)
        results = shop.compare()
    console.print(_verdict(results))
    if not all(result.equal for result in results):
        raise differs("a table")
    # Here a certificate will be shown, a row be changed behind our back, found by `verify` and repaired.
    total = sum(result.rows for result in results)
    done(
        console,
        f"{total:,} rows at 2 sinks after {transactions:,} transactions and a kill -9: equal, row by row"
        f" ({time.monotonic() - started:.0f} s)",
    )
    console.print(f"\nLook around: [bold]{folder}[/bold] (pipeline.yaml is the whole configuration)")
    console.print("Next: [bold]truecut init --dsn postgresql://…[/bold]")


def live(console: Console, shop: Shop, *, orders: int, seconds: int) -> int:
    """A shop is opened, copied, killed and resumed; how many transactions its customers have made."""
    shop.make(orders=orders)
    customers = Customers(shop, orders=orders)
    customers.start()
    rows = orders * (1 + LINES)
    done(console, f"PostgreSQL 18 started, {rows:,} rows; customers order, change and cancel")
    try:
        _first_life(console, shop, customers, seconds=seconds)
        _second_life(console, shop, customers, seconds=seconds)
    finally:
        customers.stop()
    return customers.transactions


def _first_life(console: Console, shop: Shop, customers: Customers, *, seconds: int) -> None:
    """Until it is killed without a warning, in the middle of its work."""
    with Run(shop.file, console, what="sink") as run:
        begun, before = time.monotonic(), customers.transactions
        run.watch("copying every table, while orders keep changing", run.all_seeded)
        passed = time.monotonic() - begun
        pace = (customers.transactions - before) / passed
        aside = f"nothing locked: {pace:,.0f} transactions/s went on"
        done(console, f"backfill {passed:.1f} s (Spark's start included), {aside}")
        deadline = time.monotonic() + seconds / 2
        run.watch("changes flow", lambda _: time.monotonic() > deadline)
        run.kill()
    console.print("[red]✗[/red] killed -9 in the middle of it")


def _second_life(console: Console, shop: Shop, customers: Customers, *, seconds: int) -> None:
    """The next run takes the sinks over and goes on where their own cursors stand."""
    with Run(shop.file, console, what="sink") as run:
        run.watch("started again; leases of the dead run are running out", run.all_seeded)
        done(console, "resumed from the cursors in the sinks themselves, nothing copied again")
        deadline = time.monotonic() + seconds / 2
        run.watch("changes flow", lambda _: time.monotonic() > deadline)
        customers.stop()
        end = shop.end_of_log()
        run.watch("the last changes", lambda reports: run.all_at(reports, end))
        console.print(table_of(run.last, run.sinks, what="sink"))
        run.stop()


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
