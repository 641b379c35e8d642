"""Where blocks go: what is meant by an address, and what is said of one that means nothing."""

import pytest

from mew.journal.kafka import InvalidTopicUrl, TopicUrl, parse_topic_url


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
    ("text", "topic", "wrong_part"),
    [
        ("a:9092/lab", None, "a:9092/lab"),
        ("kafka://a/lab", None, "a"),
        ("kafka://a:0/lab", None, "a:0"),
        ("kafka://a:70000/lab", None, "a:70000"),
        ("kafka://a:9092,/lab", None, ""),
        ("kafka://a:9092", None, "kafka://a:9092"),
        ("kafka://a:9092/", None, "kafka://a:9092/"),
        ("kafka://a:9092/lab/x", None, "lab/x"),
        ("kafka://a:9092/..", None, ".."),
        ("kafka://a:9092/" + "x" * 250, None, "x" * 250),
        ("kafka://a:9092/lab", "den", "den"),
    ],
)
def test_an_invalid_address_is_rejected_and_its_wrong_part_named(text: str, topic: str | None, wrong_part: str) -> None:
    with pytest.raises(InvalidTopicUrl) as rejected:
        parse_topic_url(text, topic)
    assert repr(wrong_part) in str(rejected.value)
