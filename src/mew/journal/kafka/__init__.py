"""The journal in Kafka: the same blocks, sent by a separate process that only reads what is fsynced.

This module parses the address of a topic, `kafka://host:port[,host:port]/topic`, and makes no connection. The package
does not depend on the gateway, which does not wait for it, or on how blocks are processed after the broker.
"""

import re
from typing import Final

import msgspec

from mew.errors import MewError

TOPIC_URL_SCHEME: Final = "kafka://"
TOPIC_URL_FORM: Final = "kafka://host:port[,host:port]/topic"
_SERVER: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_MOST_PORT: Final = 65_535


class InvalidTopicUrl(MewError, ValueError):
    """The text is not a valid address of a topic."""


class TopicUrl(msgspec.Struct, frozen=True):
    """A topic, and the brokers to connect to."""

    servers: tuple[str, ...]
    """Each is `host:port`; one reachable server is enough."""
    topic: str

    @property
    def bootstrap(self) -> str:
        """The servers in the format of Kafka clients."""
        return ",".join(self.servers)

    def __str__(self) -> str:
        return f"{TOPIC_URL_SCHEME}{self.bootstrap}/{self.topic}"


def parse_topic_url(text: str, topic: str | None = None) -> TopicUrl:
    """Parse an address. The topic may be given separately. Raises `InvalidTopicUrl` with the reason."""
    if not text.startswith(TOPIC_URL_SCHEME):
        raise InvalidTopicUrl(f"expected {TOPIC_URL_FORM}, got {text!r}")
    servers, _, topic_name = text.removeprefix(TOPIC_URL_SCHEME).partition("/")
    if topic_name and topic is not None and topic_name != topic:
        raise InvalidTopicUrl(f"the topic is {topic_name!r} in {text!r}, and {topic!r} beside it")
    topic_name = topic_name or topic or ""
    if not topic_name:
        raise InvalidTopicUrl(f"{text!r} names no topic: expected {TOPIC_URL_FORM}")
    if _TOPIC.fullmatch(topic_name) is None:
        raise InvalidTopicUrl(
            f"{topic_name!r} is no name of a topic: expected up to 249 letters, digits, `.`, `_` or `-`"
        )
    return TopicUrl(tuple(map(_read_server, servers.split(","))), topic_name)


def _read_server(text: str) -> str:
    match = _SERVER.fullmatch(text)
    if match is None or not 0 < int(match[1]) <= _MOST_PORT:
        raise InvalidTopicUrl(f"expected a host and a port such as broker:9092, got {text!r}")
    return text
