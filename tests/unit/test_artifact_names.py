"""Where an artifact is: within its folder, whatever a tenant is called."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from floodmark.model.posts import Chat
from floodmark.sinks.files import folder_of

ROOT = Path("/artifacts")


@pytest.mark.spec("T7", "G9")
@given(tenant=st.text(min_size=1, max_size=400), other=st.text(min_size=1))
@example(tenant="..", other=".")
@example(tenant="../../etc/passwd", other="/etc/passwd")
@example(tenant="CON", other="con")
@example(tenant="a\0b", other="a")
@example(tenant="a\\..\\b", other="\u0430")
@example(tenant="x" * 300, other="x" * 301)
def test_no_name_leads_out_of_the_folder(tenant: str, other: str) -> None:
    """One folder below the root for each tenant, of plain letters, short enough for every file system."""
    path = folder_of(ROOT, Chat(17, tenant))
    folder, chat = path.relative_to(ROOT).parts
    assert chat == "17"
    assert folder.startswith("tenant-")
    assert set(folder) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-%")
    assert len(folder) < 200
    if other != tenant:
        assert folder_of(ROOT, Chat(17, other)) != path
