"""What takes long to import is imported by those who need it."""

import subprocess
import sys

_LOOK = (
    "import sys, floodmark.app, floodmark.runtime.scheduler_role, floodmark.runtime.worker_role;"
    " print(*({} & set(sys.modules)))"
)


def test_who_has_no_redis_and_traces_nothing_imports_no_client_for_it() -> None:
    looked = subprocess.run(
        [sys.executable, "-c", _LOOK.format({"redis", "opentelemetry.sdk"})], capture_output=True, text=True, check=True
    )
    assert looked.stdout.split() == []
