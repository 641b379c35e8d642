"""Where blocks go: what is meant by an address, and what is said of one that means nothing."""

import pytest

from mew.journal.kafka.address import InvalidTopicUrl, TopicUrl, parse_topic_url


def test_an_address_names_brokers_and_a_topic() -> None:
    url = parse_topic_url("kafka://a:9092,[::1]:19092/mew.lab-1")
    assert url == TopicUrl(("a:9092", "[::1]:19092"), "mew.lab-1")
    assert url.bootstrap == "a:9092,[::1]:19092"
    assert str(url) == "kafka://a:9092,[::1]:19092/mew.lab-1"


def test_the_topic_may_stand_beside_the_address() -> None:
    assert (
        parse_topic_url("kafka://a:9092", "lab")
        == parse_topic_url("kafka://a:9092/lab")
        == TopicUrl(("a:9092",), "lab")
    )
    assert parse_topic_url("kafka://a:9092/lab", "lab").topic == "lab"


@pytest.mark.parametrize(
    ("text", "topic", "message"),
    [
        ("a:9092/lab", None, "expected kafka://host:port"),
        ("kafka://a/lab", None, "expected a host and a port"),
        ("kafka://a:0/lab", None, "expected a host and a port"),
        ("kafka://a:70000/lab", None, "expected a host and a port"),
        ("kafka://a:9092,/lab", None, "expected a host and a port"),
        ("kafka://a:9092", None, "names no topic"),
        ("kafka://a:9092/", None, "names no topic"),
        ("kafka://a:9092/lab/x", None, "is no name of a topic"),
        ("kafka://a:9092/..", None, "is no name of a topic"),
        ("kafka://a:9092/" + "x" * 250, None, "is no name of a topic"),
        ("kafka://a:9092/lab", "den", "'den' beside it"),
    ],
)
def test_what_means_nothing_is_refused_with_a_reason(text: str, topic: str | None, message: str) -> None:
    with pytest.raises(InvalidTopicUrl, match=message):
        parse_topic_url(text, topic)
