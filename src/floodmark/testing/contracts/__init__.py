"""The guarantees of the ports, as tests. Subclass a contract in your own tests and run it on your adapter.

They need pytest with pytest-asyncio in `auto` mode; the contract of sinks also needs hypothesis.
"""

import pytest

for _name in ("stores", "queue", "leases", "signals", "sink", "event_sink", "source", "search_index"):
    pytest.register_assert_rewrite(f"{__name__}.{_name}")
