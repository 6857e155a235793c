"""Commands for a first try start where the parts of POSIX are missing, as on Windows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# What Windows does not have. Libraries are imported first: they have their own ways around it.
_WITHOUT_POSIX = """
import asyncio, os, signal, socket, sys
import asyncpg, redis, rich, sqlalchemy, telethon

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {"fcntl", "resource", "pwd", "grp", "termios", "uvloop"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def refuse(*_):
    raise NotImplementedError

sys.meta_path.insert(0, Missing())
for module, names in (
    (os, "fork getuid getgid uname killpg getpgid setsid fchmod statvfs O_DIRECTORY O_NOFOLLOW"),
    (signal, "SIGKILL SIGHUP SIGUSR1 SIGUSR2 SIGSTOP pthread_kill"),
    (socket, "SO_REUSEPORT TCP_USER_TIMEOUT"),
):
    for name in [*filter(lambda each: hasattr(module, each), names.split())]:
        delattr(module, name)
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules.pop(name, None)
asyncio.SelectorEventLoop.add_signal_handler = refuse
sys.argv[0] = "floodmark"
from floodmark.cli import main
from floodmark.process import lock_files as files
files._BOOT_ID = files.Path("no such file")
main()
"""


@pytest.mark.spec("G7")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("up", "--port", "0", "--seconds", "1"), "is up"),
        pytest.param(("demo", "--seconds", "1"), "0 missing", marks=pytest.mark.release),
        pytest.param(
            ("testing", "web", "--pages", "3", "--seconds", "1"), "http://127.0.0.1", marks=pytest.mark.release
        ),
        pytest.param(("testing", "telegram", "--port", "0", "--seconds", "1"), "127.0.0.1", marks=pytest.mark.release),
    ],
    ids=["up", "demo", "web", "telegram"],
)
@pytest.mark.thorough
def test_it_starts_without_posix(command: tuple[str, ...], said: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _WITHOUT_POSIX, *command],
        cwd=tmp_path,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stdout + ran.stderr
    assert said in ran.stdout
