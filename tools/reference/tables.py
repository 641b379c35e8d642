"""docs/reference/tables.md: the tables of a lake with their declared columns, and an example query for each.

Names, types and meanings of columns come from the declaration. Only the queries are here; a test runs them.
"""

from typing import Final

import pyarrow as pa

from mew.pipeline.lake.progress_table import PROGRESS
from mew.pipeline.schemas import COMMENT, TABLES, TIME, Table
from tools.reference.writing import MADE, code, sentence, table

INTRO: Final = """\
# Pipeline tables

The tables that `mew pipeline run` builds from a journal, and that `mew pipeline query` queries. [The
guide](../pipeline.md) has more queries. Times are in UTC. Within a space, `position` is the order of events. A row with
`open` true may still change. The key of a table is the set of columns that identifies a row.

Below each table is a question that it answers, in DuckDB's SQL. Run the queries in the folder of a used space:

<!-- set-up: minutes -->
```bash
mew init --name lab
mew pipeline run
```

"""

QUESTIONS: Final = {
    "envelopes": (
        "What was refused to whom, and why?",
        "select time, participant, kind, reason from envelopes where not accepted order by space, position",
    ),
    "system_records": (
        "When did the gateway start, and with which default for streams whose owner leaves?",
        """select time, configuration ->> '$.streams.on_owner_disconnect' as policy
from system_records
where event = 'start'
order by space, position""",
    ),
    "participants": (
        "Who was present, and for how long?",
        """select participant, joined_time, left_time - joined_time as stayed, reason
from participants
order by joined_position""",
    ),
    "streams": (
        "Which streams carried the most data?",
        "select stream_id, creator, owner, frames + data as messages, bytes from streams order by bytes desc",
    ),
    "stream_access": (
        "Who owned a stream when?",
        """select participant, from_time, to_time, why, ended_why
from stream_access
where stream_id = 'moves' and role = 'owner'
order by from_position""",
    ),
    "capabilities": (
        "What may each participant do now, and since when?",
        """select participant, capability, source, from_time
from capabilities
where open
order by participant, from_position""",
    ),
    "formats": (
        "Which formats do the streams have, and what are the columns of each?",
        "select stream_id, format_id, mime_type, fingerprint, columns from formats order by position",
    ),
    "frames": (
        "What does a stream contain, from its first frame on?",
        """select frame_number, time, writer, value
from frames
where stream_id = 'moves' and valid
order by position""",
    ),
    "quarantine": (
        "Which frames did not match their format?",
        "select stream_id, writer, frame_number, reason, detail from quarantine order by position",
    ),
    "sequence_gaps": (
        "How many sequence numbers did each writer skip?",
        "select stream_id, writer, sum(missing) as missing from sequence_gaps group by all order by missing desc",
    ),
    "reader_gaps": (
        "Which readers were too slow, and how many frames did they lose?",
        "select reader, stream_id, sum(dropped) as dropped from reader_gaps group by all order by dropped desc",
    ),
    "stream_activity": (
        "What is the bandwidth of each stream in its busiest second?",
        "select stream_id, max(bytes) as bytes from stream_activity where seconds = 1 group by all order by bytes desc",
    ),
    "participant_activity": (
        "How active was each participant, by minute?",
        "select start, participant, envelopes, frames, refusals from participant_activity order by start, participant",
    ),
    "conversations": (
        "What was requested, what was the outcome, and after how many milliseconds?",
        """select method, participants, outcome, answered_after / 1000 as milliseconds
from conversations
order by position""",
    ),
    "approvals": (
        "How did proposals end, and after how many seconds?",
        """select tool, proposer, "by", outcome, decided_after / 1000000 as seconds
from approvals
order by position""",
    ),
    "admin_events": (
        "Which connections were refused, from where, and how often?",
        """select peer, participant, error, sum("count") as times
from admin_events
where action = 'connection_refused'
group by all
order by times desc""",
    ),
    "audit": (
        "Which checks were run, and did any fail?",
        'select "check", sum(checked) as checked, sum(violations) as violations from audit group by all order by all',
    ),
    "progress": (
        "Up to which position are the tables?",
        "select batch, finished, unnest(positions, recursive := true) from progress order by batch desc",
    ),
}
"""A question that each table answers, and its query."""

LAST: Final = """\
## Frames with typed columns

`frames_<slug>_<fingerprint>` has the valid frames of one format, with a column for each property of its schema:
[the guide](../pipeline.md#frames-with-typed-columns) explains their names and when they are separate tables.
"""


def page() -> str:
    """Return the page."""
    return MADE + INTRO + "\n".join(map(section, (*TABLES.values(), PROGRESS))) + "\n" + LAST


def section(declared: Table) -> str:
    """Return the section of a table: what a row is, its columns, its key, a query."""
    question, sql = QUESTIONS[declared.name]
    rows = [
        (code(field.name), code(type_words(field.type)), "yes" if field.nullable else "", _meaning(field))
        for field in declared.schema
    ]
    columns = table(("column", "type", "may be null", "meaning"), rows)
    key = ", ".join(map(code, declared.key))
    return f"## `{declared.name}`\n\n{declared.comment} Key: {key}.\n\n{columns}\n{question}\n\n```sql\n{sql}\n```\n"


def _meaning(field: pa.Field) -> str:
    return sentence(field.metadata[COMMENT].decode())


def type_words(data_type: pa.DataType) -> str:
    """Return a type as the engines call it."""
    return str(data_type).replace("element: ", "").replace(str(TIME), "timestamp")
