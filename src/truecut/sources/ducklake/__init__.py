"""DuckLake as a source: its snapshots are the change log, position = snapshot id.

file     kind.py      its section of the pipeline file
plan     source.py    which window, which tasks: metadata only
         catalog.py   what the catalog's tables say
         history.py   whether the change feed can be believed, where a window ends
         schema.py    columns by id, types that survive, reasons to hold a table
read     attach.py    one DuckDB for a process, lakes attached only while they are read
         tasks.py     what travels to executors
         normal.py    net changes per key, from images of rows before and after
"""
