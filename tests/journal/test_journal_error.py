"""Every error of the journal is a `JournalError`."""

import importlib
import pkgutil

import mew.journal
from mew.errors import MewError
from mew.journal import JournalError
from mew.journal.kafka import InvalidTopicUrl


def test_every_error_of_the_journal_has_one_base() -> None:
    modules = pkgutil.walk_packages(mew.journal.__path__, "mew.journal.")
    namespaces = [vars(importlib.import_module(module.name)) for module in modules]
    errors = {
        value
        for namespace in namespaces
        for value in namespace.values()
        if isinstance(value, type) and issubclass(value, MewError) and value.__module__.startswith("mew.journal.")
    }
    assert len(errors) > 10
    # The address is read from a configuration, before there is a journal.
    assert {error for error in errors if not issubclass(error, JournalError)} == {InvalidTopicUrl}
