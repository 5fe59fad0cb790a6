"""Every rule a pipeline file can break, each with its code: the TC1xxx errors.

A finding says what is wrong in one place; its rule says what that kind of fault means and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of fault. `docs/errors.md` is generated from these."""

    code: str
    meaning: str
    fix: str


UNREADABLE = Rule("TC1001", "The pipeline file cannot be read.", fix="Check the path and its permissions.")
TOO_LARGE = Rule(
    "TC1002",
    "The pipeline file is larger than 1 MiB.",
    fix="Check that it is the right file; list many sinks in a `for_each` file.",
)
NOT_UTF8 = Rule("TC1003", "The file is not UTF-8 text.", fix="Save it as UTF-8.")
NOT_YAML = Rule(
    "TC1004",
    "The file is not YAML, or uses a part of YAML that pipeline files do without (tags, merge keys).",
    fix="Correct the line named; indent with spaces and quote text that holds `: ` or ` #`.",
)
SEVERAL_DOCUMENTS = Rule(
    "TC1005", "The file holds several YAML documents.", fix="Write one file for each pipeline."
)
EMPTY_FILE = Rule("TC1006", "The file is empty.", fix="`truecut init` writes one to begin with.")
DUPLICATE_KEY = Rule("TC1007", "A key stands twice in one mapping.", fix="Keep one of the two.")
TOO_DEEP = Rule(
    "TC1008",
    "The YAML is nested too deeply, or its aliases unfold into too much.",
    fix="Write the settings out without aliases.",
)
UNKNOWN_KEY = Rule(
    "TC1010", "A key that does not exist in that place.", fix="Correct the spelling, or take it out."
)
WRONG_TYPE = Rule(
    "TC1011", "A value of the wrong type.", fix="Write it as the message says; quotes make text of anything."
)
WRONG_VALUE = Rule("TC1012", "A value that is not one of those allowed.", fix="Use one that is listed.")
MISSING = Rule("TC1013", "A setting that must be there is not.", fix="Add it.")
OUT_OF_RANGE = Rule("TC1014", "A value that is empty, too small, too large or malformed.", fix="Correct it.")
NOT_YET = Rule(
    "TC1015",
    "A setting, type or value whose name is taken but which is not available yet.",
    fix="Take it out until a version of truecut offers it.",
)
BAD_UNIT = Rule(
    "TC1016",
    "Not a duration (`500ms`, `2s`, `10m`, `1h`) or not a size (`64MiB`).",
    fix="Write a whole number followed by ms, s, m or h; or by KiB, MiB, GiB or TiB.",
)
BAD_NAME = Rule(
    "TC1017",
    "A pipeline's name is made of letters, digits, `-` and `_`.",
    fix="Choose another name; state, leases and cursors are kept under it.",
)

VARIABLE_MISSING = Rule(
    "TC1020",
    "An environment variable that the file refers to is not set.",
    fix="Set it, or give a default: `${NAME:-default}`.",
)
SECRET_FILE = Rule(
    "TC1021",
    "A file that `${file:PATH}` refers to cannot be read.",
    fix="Check path (relative to the pipeline file) and permissions.",
)
BAD_REFERENCE = Rule(
    "TC1022",
    "A `${…}` that is none of `${NAME}`, `${NAME:-default}`, `${file:PATH}`.",
    fix="Correct it; `$$` is a plain dollar.",
)

FOR_EACH_UNREADABLE = Rule(
    "TC1030",
    "A `for_each` file cannot be read.",
    fix="Check path (relative to the pipeline file) and permissions.",
)
FOR_EACH_EMPTY = Rule(
    "TC1031",
    "A `for_each` file has no line below its header.",
    fix="Add a line for each sink, or take the sink out of the pipeline file.",
)
FOR_EACH_HEADER = Rule(
    "TC1032",
    "The first line of a `for_each` file must name the columns, each once.",
    fix="Correct the header.",
)
FOR_EACH_LINE = Rule(
    "TC1033",
    "A line of a `for_each` file is empty, malformed or does not fit the header.",
    fix="Correct or remove the line.",
)
FOR_EACH_DUPLICATE = Rule("TC1034", "Two lines of a `for_each` file are the same.", fix="Remove one.")
PLACEHOLDER = Rule(
    "TC1035",
    "A `{placeholder}` without a column of that name, or without a `for_each`.",
    fix="Use a name from the header of the `for_each` file.",
)
FOR_EACH_NAME = Rule(
    "TC1036",
    "The name of a `for_each` sink holds no placeholder, so that all its sinks would have one name.",
    fix='Put a placeholder into it, e.g. name: "t-{tenant}".',
)

DUPLICATE_SINK = Rule("TC1040", "Two sinks have the same name.", fix="Rename one.")
SHARED_CATALOG = Rule(
    "TC1041",
    "Two sinks would write into the same catalog or schema.",
    fix="Give each its own, or make one sink of them that names the `tables` of both.",
)
SINK_IS_SOURCE = Rule(
    "TC1042", "A sink would write into the catalog that is the source.", fix="Give the sink its own catalog."
)
DUPLICATE_TABLE = Rule(
    "TC1043",
    "Two tables have the same name (upper and lower case count as the same).",
    fix="Remove one.",
)
TABLE_NAME = Rule("TC1044", "A table's name is not schema.table.", fix="Write it as e.g. main.events.")
GLOB = Rule(
    "TC1045", "Table names with wildcards do not work with this kind of source.", fix="Name each table."
)
KEY_MISSING = Rule(
    "TC1046",
    "The source knows no primary keys, so a table must say which columns identify a row.",
    fix="Add e.g. key: [id].",
)
ROUTE_WITHOUT_COLUMN = Rule(
    "TC1047",
    "A sink with `route` carries a table that has no `route_by`: it would get everybody's rows.",
    fix="Add `route_by`, or `broadcast: true` when every sink is to get all rows of the table.",
)
BROADCAST_AND_ROUTE = Rule(
    "TC1048", "A table is both routed and broadcast.", fix="Keep `route_by` or `broadcast`."
)
SINK_TABLE = Rule(
    "TC1049", "A sink names a table that the pipeline does not have.", fix="Add it to spec.tables first."
)
STATE_FOLDER = Rule(
    "TC1069",
    "The state folder is, or holds, the pipeline file's folder, a source or a sink.",
    fix="Name a folder that Truecut has to itself, e.g. `state: ./state`; keep catalogs and data elsewhere.",
)
WITNESS = Rule(
    "TC1071",
    "`certificate.witness` is not the name of a second slot of a source that is captured.",
    fix="Name a slot of its own, e.g. witness: shop_witness; leave it out for other sources.",
)
LISTEN_OPEN = Rule(
    "TC1070",
    "`listen` is an address that other machines can reach, and nothing asks them who they are.",
    fix='Add e.g. listen_token: "${TRUECUT_TOKEN}", or listen on 127.0.0.1.',
)
