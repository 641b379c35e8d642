"""Where Spark's Python workers come from: a process that has loaded what they need, and forks them.

Run by Spark instead of its own, which it calls. Spark ends a worker that had nothing to do for a minute; with this the
next one is ready immediately, and no caller waits until everything is loaded again.
"""

from pyspark.daemon import manager

import mew.pipeline.jobs.tasks  # noqa: F401 - what the workers' first task would load

if __name__ == "__main__":
    manager()
