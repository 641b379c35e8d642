"""What the page's models keep and cut out, where no view shows it."""

import pytest

from tests.inspector.building import INSTALL_SECONDS, installed, ran

pytestmark = pytest.mark.timeout(INSTALL_SECONDS + 60)


def test_texts_are_cut_out_as_they_stand_and_nothing_grows_without_bound() -> None:
    installed()
    done = ran("node", "vectors/model.mjs")
    assert done.returncode == 0, done.stderr
