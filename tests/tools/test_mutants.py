"""Which mutants may survive: those argued for, and those that only change a sentence."""

import pytest

from tools.mutants import ARGUED, KILLED, NEW, SURVIVORS, WORDING, Mutant, is_wording, judged, read_argued, report

LIST = """
[[survivor]]
function = "mew.protocol.timestamps.rfc3339"
changes = ['''
- a = 1
+ a = 2
''']
why = "it makes no difference"
"""
ARGUED_FOR = Mutant("mew.protocol.timestamps.rfc3339", "- a = 1\n+ a = 2")
UNKNOWN = Mutant("mew.protocol.timestamps.rfc3339", "- a = 1\n+ a = None")
REWORDED = Mutant(
    "mew.protocol.timestamps.rfc3339", '- raise ProtocolError("not now")\n+ raise ProtocolError("NOT NOW")'
)


@pytest.mark.parametrize(
    "change",
    [
        '- raise ProtocolError("not now")\n+ raise ProtocolError("XXnot nowXX")',
        "- 'Not now',\n+ 'not now',",
        '- raise ProtocolError(f"no {name!r}", hint="look here", name=name)\n'
        '+ raise ProtocolError(f"no {name!r}", hint="LOOK HERE", name=name)',
        '- raise ProtocolError("not now",\n+ raise ProtocolError("NOT NOW",',
    ],
)
def test_a_sentence_may_be_worded_otherwise(change: str) -> None:
    assert is_wording(change)


@pytest.mark.parametrize(
    "change",
    [
        '- code = "not_now"\n+ code = "XXnot_nowXX"',
        '- raise ProtocolError("not now")\n+ raise ProtocolError(None)',
        '- raise ProtocolError("not now", name=name)\n+ raise ProtocolError("not now", )',
        '- raise ProtocolError("not now", name=name)\n+ raise ProtocolError("not now", name=None)',
        '- return f"not {text[:20]}"\n+ return f"not {text[:21]}"',
        '- "not now",',
    ],
)
def test_anything_else_is_more_than_wording(change: str) -> None:
    assert not is_wording(change)


def test_a_survivor_is_news_unless_it_is_argued_for_or_worded_otherwise() -> None:
    survivors = [(KILLED, None), (NEW, ARGUED_FOR), (NEW, UNKNOWN), (NEW, REWORDED)]
    verdicts = [verdict for verdict, _ in judged(survivors, read_argued(LIST))]
    assert verdicts == [KILLED, ARGUED, NEW, WORDING]


@pytest.mark.parametrize(
    ("results", "passed", "message"),
    [
        ([(KILLED, None), (ARGUED, ARGUED_FOR)], True, "1 killed, 0 caught by types, 1 argued, 0 wording, 0 NEW"),
        ([(ARGUED, ARGUED_FOR), (NEW, UNKNOWN)], False, "NEW: mew.protocol.timestamps.rfc3339\n- a = 1\n+ a = None"),
        ([(KILLED, None)], True, "warning: argued for, but does not survive: mew.protocol.timestamps.rfc3339"),
        ([(ARGUED, ARGUED_FOR), ("not checked", None)], False, "not tried: 1 (not checked)"),
        ([], False, "0 killed"),
    ],
)
def test_a_report_says_what_is_new_and_what_is_old(
    capsys: pytest.CaptureFixture[str], results: list[tuple[str, Mutant | None]], passed: bool, message: str
) -> None:
    assert report(results, {ARGUED_FOR}) is passed
    assert message in capsys.readouterr().out


def test_every_argument_says_why() -> None:
    text = SURVIVORS.read_text(encoding="utf-8")
    assert text.count("[[survivor]]") == text.count("\nwhy = ") > 0
    assert read_argued(text)
