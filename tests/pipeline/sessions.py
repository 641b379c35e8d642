"""How tests open Spark: small, and for a short life.

Must not open one; tests that share it have a fixture for that.
"""

from mew.pipeline.settings import PipelineSettings

SETTINGS = PipelineSettings(master="local[2]", driver_memory="1g")
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""So little work is done before a better compiler would have paid."""
FOR_CHILDREN = {"JDK_JAVA_OPTIONS": " ".join(SHORT_LIVED)}
"""The same for a Spark that a process of its own starts: Java itself reads this variable."""
