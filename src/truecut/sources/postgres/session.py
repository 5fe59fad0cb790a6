"""What the text form of values depends on: whoever reads the stream or a table sets it first."""

from __future__ import annotations

from collections.abc import Mapping

TEXT_FORM: Mapping[str, str] = {
    "client_encoding": "UTF8",  # the stream's texts are converted, as a query's are
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",  # years, mons, days and time, each with its sign
    "timezone": "UTC",  # timestamptz, and ranges of it
    "extra_float_digits": "1",  # the shortest digits that give the same float again
    "bytea_output": "hex",
    "lc_monetary": "C",  # money as $1,234.50, in every locale
    "search_path": "pg_catalog",  # regclass and its like name the schema of everything else
    "quote_all_identifiers": "off",
}
