"""What tasks and gold tables make of frames, written plainly: ordinary DataFrames over the segments of a journal.

Slow, and easy to read. Knows as much of JSON Schema as the generator's formats need, and refuses the rest.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

VECTOR_BYTES = 12
KEYS = ("run", "space", "stream_id")
TYPES = {
    "string": "^STRING$",
    "boolean": "^BOOLEAN$",
    "integer": "^BIGINT$",
    "number": "^(BIGINT|DOUBLE|FLOAT|DECIMAL.*)$",
    "object": "^OBJECT<",
    "array": "^ARRAY<",
}
KNOWN_KEYWORDS = {"type", "required", "properties", "items", "minItems", "maxItems"}


def segments(session: SparkSession, roots: Iterable[Path], part: str) -> DataFrame:
    """The rows of `control` or `frames` files of several journals; `run` is the folder that each lies in."""
    paths = [str(path) for root in roots for path in sorted(root.rglob(f"*.{part}.parquet"))]
    name = F.input_file_name()
    return (
        session.read.parquet(*paths)
        .withColumn("run", F.regexp_extract(name, "/([^/]+)/journal/", 1))
        .withColumn("space", F.regexp_extract(name, "/space=([^/]+)/", 1))
    )


def announced(control_df: DataFrame) -> DataFrame:
    """One row a stream: its formats as texts, and what a v0.4 stream says instead; as the gateway told it first."""
    shape = "payload struct<formats array<string>, content_type string, format string>"
    is_told = F.col("kind").isin("stream/open", "stream/ready") & (F.col("participant") == "system:gateway")
    return (
        control_df.where(is_told & (F.col("event") == "envelope"))
        .groupBy(*KEYS)
        .agg(F.min_by(F.from_json(F.col("payload").cast("string"), shape), "position").alias("said"))
        .select(
            *KEYS,
            F.coalesce("said.payload.formats", F.array().cast("array<string>")).alias("formats"),
            F.col("said.payload.content_type").alias("content_type"),
            F.col("said.payload.format").alias("named"),
        )
    )


def decoded(frames_df: DataFrame, announced_df: DataFrame, descriptors: Iterable[str]) -> DataFrame:
    """One row a frame: what it carries, in which format, and what is wrong with it, if anything is."""
    text = F.col("payload").cast("string")
    is_data = F.col("event") != "frame"
    meant = F.when(F.col("named") == "binary-vector3", '{"id":"binary-vector3"}').when(
        F.col("content_type") == "application/json", '{"mime_type":"application/json"}'
    )
    only = F.when(F.size("formats") == 1, F.get("formats", 0))
    chosen = F.get(F.filter("formats", lambda each: F.get_json_object(each, "$.id") == F.col("asked")), 0)
    return (
        frames_df.join(F.broadcast(announced_df), list(KEYS), "left")
        .withColumn("data", is_data)
        .withColumn("content", F.when(is_data, F.get_json_object(text, "$.payload.content")).otherwise(text))
        .withColumn("asked", F.when(is_data, F.get_json_object(text, "$.payload.format_id")))
        .withColumn(
            "descriptor",
            F.when(is_data & F.col("asked").isNotNull(), chosen).otherwise(
                F.when((F.size("formats") == 0) & ~is_data, meant).otherwise(only)
            ),
        )
        .withColumn("reason", _by_descriptor(descriptors, reason))
        .withColumn("shown", _by_descriptor(descriptors, is_text).otherwise(is_data))
        .withColumn("fingerprint", _by_descriptor(descriptors, lambda each: F.lit(fingerprint(each))))
    )


def _by_descriptor(descriptors: Iterable[str], of: Any) -> Column:
    found = F.when(F.lit(False), of(json.loads('{"id":"none"}')))
    for each in descriptors:
        found = found.when(F.col("descriptor") == each, of(json.loads(each)))
    return found


def reason(descriptor: dict[str, Any]) -> Column:
    """What is wrong with `content`."""
    broken = ~F.is_valid_utf8("content") | F.try_parse_json("content").isNull()
    misfit = ~fits(F.try_parse_json("content"), descriptor.get("schema", {}))
    as_json = F.when(broken, "not_json").when(misfit, "schema")
    if descriptor.get("id") == "binary-vector3":
        odd = F.length("payload") % VECTOR_BYTES != 0
        return F.when(F.col("data"), as_json).otherwise(F.when(odd, "length"))
    if descriptor.get("mime_type") == "text/plain":
        return F.when(F.col("data"), as_json).otherwise(F.when(~F.is_valid_utf8("content"), "not_utf8"))
    return F.when(F.col("data") | F.lit(descriptor.get("mime_type") == "application/json"), as_json)


def is_text(descriptor: dict[str, Any]) -> Column:
    """Whether `content` can be shown."""
    as_json = F.try_parse_json("content").isNotNull() & F.is_valid_utf8("content")
    if descriptor.get("mime_type") == "text/plain":
        return F.when(F.col("data"), as_json).otherwise(F.is_valid_utf8("content"))
    return F.when(F.col("data") | F.lit(descriptor.get("mime_type") == "application/json"), as_json).otherwise(
        F.lit(False)
    )


def fits(value: Column, schema: dict[str, Any]) -> Column:
    """Whether a variant is what a schema says."""
    assert schema.keys() <= KNOWN_KEYWORDS, schema
    found = F.lit(True)
    if "type" in schema:
        found = found & F.coalesce(F.schema_of_variant(value).rlike(TYPES[schema["type"]]), F.lit(False))
    for name in schema.get("required", ()):
        found = found & F.try_variant_get(value, f"$.{name}", "variant").isNotNull()
    for name, below in schema.get("properties", {}).items():
        there = F.try_variant_get(value, f"$.{name}", "variant")
        found = found & (there.isNull() | fits(there, below))
    items = F.try_variant_get(value, "$", "array<variant>")
    if "items" in schema:
        found = found & F.coalesce(F.forall(items, lambda each: fits(each, schema["items"])), F.lit(True))
    if "minItems" in schema:
        found = found & (items.isNull() | F.size(items).between(schema["minItems"], schema["maxItems"]))
    return found


def fingerprint(descriptor: dict[str, Any]) -> str:
    """As the table `formats` has it, by another way to the same text."""
    told: Any = descriptor.get("schema")
    if descriptor.get("id") == "binary-vector3":
        told = ["layout", "vector3/f32"]
    elif told is None:
        told = ["mime_type", descriptor.get("mime_type")]
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sequence_gaps(frames_df: DataFrame) -> DataFrame:
    """One row a gap: what a writer left out of its sequence, at the frame that reveals it."""
    of_writer = Window.partitionBy(*KEYS, "participant").orderBy("position")
    return (
        frames_df.where("sequence is not null")
        .withColumn("before", F.lag("sequence").over(of_writer))
        .where("sequence > before + 1")
        .select(
            *KEYS,
            F.col("participant").alias("writer"),
            "position",
            F.unix_micros("time").alias("time"),
            (F.col("before") + 1).alias("first"),
            (F.col("sequence") - 1).alias("last"),
            (F.col("sequence") - F.col("before") - 1).alias("missing"),
        )
    )


def stream_activity(decoded_df: DataFrame, gaps_df: DataFrame, last_df: DataFrame, seconds: int) -> DataFrame:
    """One row a stream and window; `last_df` has the time of each space's last record."""
    of_stream = Window.partitionBy(*KEYS).orderBy("position")
    micros = F.unix_micros("time")
    wait = micros - F.lag(micros).over(of_stream)
    lost_df = gaps_df.select("run", "space", "position", "missing")
    windows_df = (
        decoded_df.join(lost_df, ["run", "space", "position"], "left")
        .withColumn("wait", wait)
        .withColumn("spare", F.greatest(F.length(F.bin("wait")) - 5, F.lit(0)))
        .withColumn("bound", F.expr("shiftleft(shiftright(wait, spare) + 1, spare) - 1"))
        .groupBy(*KEYS, F.window("time", f"{seconds} seconds").alias("window"))
        .agg(
            F.count("*").alias("frames"),
            F.sum("size").alias("bytes"),
            F.array_sort(F.collect_set("participant")).alias("writers"),
            F.count("reason").alias("invalid"),
            F.coalesce(F.sum("missing"), F.lit(0)).alias("missing"),
            F.array_sort(F.collect_list("bound")).alias("bounds"),
        )
    )
    return windows_df.join(F.broadcast(last_df), ["run", "space"]).select(
        *KEYS,
        F.lit(seconds).cast("long").alias("seconds"),
        F.unix_micros("window.start").alias("start"),
        *("frames", "bytes", "writers", "invalid", "missing"),
        _quantile(50).alias("interarrival_p50"),
        _quantile(99).alias("interarrival_p99"),
        (F.unix_micros("window.end") > F.col("last")).alias("open"),
    )


def _quantile(percent: int) -> Column:
    """The bound that so many of a hundred are at or below."""
    place = F.ceil(F.size("bounds") * percent / 100).cast("int")
    return F.when(F.size("bounds") > 0, F.element_at("bounds", place))
