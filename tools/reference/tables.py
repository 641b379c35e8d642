"""docs/reference/tables.md: the tables of a lake, column by column, as they are declared, and a question to each.

Must not know a column by heart: names, types and meanings are those of the declaration. Only the questions are asked
here; a test runs them.
"""

from typing import Final

import pyarrow as pa

from mew.pipeline.lake.progress_table import PROGRESS
from mew.pipeline.schemas import COMMENT, TABLES, TIME, Table
from tools.reference.writing import MADE, code, sentence, table

INTRO: Final = """\
# Pipeline tables

What `mew pipeline run` makes of a journal, and `mew pipeline query` asks; [the guide](../pipeline.md) has more to ask.
Times are in UTC; within a space `position` says what came first. A row of which `open` is true may still change. The
key of a table are the columns that tell its rows apart.

Below each table is a question that it answers, in DuckDB's SQL; asked in the folder of a space that has been used:

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
    "participants": (
        "Who was here for how long?",
        """select participant, joined_time, left_time - joined_time as stayed, reason
from participants
order by joined_position""",
    ),
    "streams": (
        "Which streams carried most?",
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
        "What may each do now, and since when?",
        """select participant, capability, source, from_time
from capabilities
where open
order by participant, from_position""",
    ),
    "formats": (
        "In which formats do streams flow, and what are the columns of each?",
        "select stream_id, format_id, mime_type, fingerprint, columns from formats order by position",
    ),
    "frames": (
        "What did a stream say, from its first frame on?",
        """select frame_number, time, writer, value
from frames
where stream_id = 'moves' and valid
order by position""",
    ),
    "quarantine": (
        "What was not what its format says?",
        "select stream_id, writer, frame_number, reason, detail from quarantine order by position",
    ),
    "sequence_gaps": (
        "How much did each writer leave out?",
        "select stream_id, writer, sum(missing) as missing from sequence_gaps group by all order by missing desc",
    ),
    "reader_gaps": (
        "Who was too slow, and what did it cost?",
        "select reader, stream_id, sum(dropped) as dropped from reader_gaps group by all order by dropped desc",
    ),
    "stream_activity": (
        "What is the bandwidth of each stream in its busiest second?",
        "select stream_id, max(bytes) as bytes from stream_activity where seconds = 1 group by all order by bytes desc",
    ),
    "participant_activity": (
        "Who did how much, minute by minute?",
        "select start, participant, envelopes, frames, refusals from participant_activity order by start, participant",
    ),
    "conversations": (
        "What was asked for, what came of it, after how many milliseconds?",
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
        "From where was whom refused, and how often?",
        """select peer, participant, error, sum("count") as times
from admin_events
where action = 'connection_refused'
group by all
order by times desc""",
    ),
    "audit": (
        "Which checks were made, and did any fail?",
        'select "check", sum(checked) as checked, sum(violations) as violations from audit group by all order by all',
    ),
    "progress": (
        "How far are the tables?",
        "select batch, finished, unnest(positions, recursive := true) from progress order by batch desc",
    ),
}
"""What each table is good for: a question, and how to ask it."""

LAST: Final = """\
## Frames with typed columns

`frames_<slug>_<fingerprint>` has the valid frames of one format, with a column for each property of its schema:
[the guide](../pipeline.md#frames-with-typed-columns) tells how they are called and when they are tables of their own.
"""


def page() -> str:
    """The page."""
    return MADE + INTRO + "\n".join(map(section, (*TABLES.values(), PROGRESS))) + "\n" + LAST


def section(of: Table) -> str:
    """One table: what a row is, its columns, its key, a question."""
    asked, sql = QUESTIONS[of.name]
    rows = [
        (code(field.name), code(type_words(field.type)), "yes" if field.nullable else "", _meaning(field))
        for field in of.schema
    ]
    columns = table(("column", "type", "may be null", "meaning"), rows)
    key = ", ".join(map(code, of.key))
    return f"## `{of.name}`\n\n{of.comment} Key: {key}.\n\n{columns}\n{asked}\n\n```sql\n{sql}\n```\n"


def _meaning(field: pa.Field) -> str:
    return sentence(field.metadata[COMMENT].decode())


def type_words(of: pa.DataType) -> str:
    """A type as every engine knows it."""
    return str(of).replace("element: ", "").replace(str(TIME), "timestamp")
