"""The example packages in docs/ pass the contract tests of their ports."""

import pytest
from test_mastodon import TestMastodonSource, server
from test_ndjson import TestNdjsonSink, test_without_an_address_the_sink_is_off

__all__ = ["TestMastodonSource", "TestNdjsonSink", "server", "test_without_an_address_the_sink_is_off"]

pytestmark = pytest.mark.spec("G3", "G4")
