"""Hosts with networks of their own, on one machine: a network namespace for each, and two cables to the test.

    with Hosts(2) as hosts:
        proxy = FaultyProxy(url, host=hosts.address("sql"))     # what the hosts reach over the cable `sql`
        hosts.cut(1, "sql")                                     # packets vanish, both ways, without a word
        hosts.mend(1, "sql")

Needs Linux, root and `ip` (iproute2). Addresses are of the range for benchmarks, which is routed nowhere.
"""

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from typing import Literal, Self, get_args

import pytest

from skipping import not_tested

Cable = Literal["sql", "redis"]
_CABLES: tuple[Cable, ...] = get_args(Cable)


class Hosts:
    """Makes hosts, and removes them again."""

    def __init__(self, count: int) -> None:
        self._id = f"fm{os.getpid() % 10**7}"
        self.names = [f"{self._id}-{number}" for number in range(count)]
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        with self._undo:
            for cable in _CABLES:
                self._bridge(cable)
            for number in range(len(self.names)):
                self._host(number)
            self._undo = self._undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def address(self, cable: Cable) -> str:
        """Where the hosts reach this machine over a cable."""
        return f"{self._net(cable)}.1"

    def cut(self, number: int, *cables: Cable) -> None:
        """Let packets vanish between a host and this machine."""
        for cable in cables:
            _ip("link", "set", self._port(number, cable), "nomaster")

    def mend(self, number: int, *cables: Cable) -> None:
        """Let packets pass again."""
        for cable in cables:
            _ip("link", "set", self._port(number, cable), "master", self._switch(cable))

    def _bridge(self, cable: Cable) -> None:
        name = self._switch(cable)
        _ip("link", "add", name, "type", "bridge")
        self._undo.callback(_ip, "link", "del", name)
        _ip("address", "add", f"{self.address(cable)}/24", "dev", name)
        _ip("link", "set", name, "up")

    def _host(self, number: int) -> None:
        name = self.names[number]
        _ip("netns", "add", name)
        self._undo.callback(_ip, "netns", "del", name)
        _ip("-n", name, "link", "set", "lo", "up")
        for cable in _CABLES:
            port = self._port(number, cable)
            _ip("link", "add", port, "type", "veth", "peer", "name", cable, "netns", name)
            # A namespace is removed some time after its name, and its cables with it.
            self._undo.callback(_ip, "link", "del", port)
            _ip("link", "set", port, "master", self._switch(cable), "up")
            _ip("-n", name, "address", "add", f"{self._net(cable)}.{number + 2}/24", "dev", cable)
            _ip("-n", name, "link", "set", cable, "up")

    def _net(self, cable: Cable) -> str:
        # Of this process: another run, or what a killed one left behind, must not have the same addresses.
        return f"198.{18 + _CABLES.index(cable)}.{os.getpid() % 251}"

    def _switch(self, cable: Cable) -> str:
        return f"{self._id}{cable[0]}"

    def _port(self, number: int, cable: Cable) -> str:
        return f"{self._id}{cable[0]}{number}"


def require_namespaces() -> None:
    """Skip the test, in CI let it fail, where hosts cannot be made."""
    if sys.platform != "linux" or os.geteuid() != 0:
        # Also in CI: a run without root is not asked for it.
        pytest.skip("NOT TESTED: hosts in network namespaces need Linux and root.")
    if shutil.which("ip") is None:
        not_tested("Hosts in network namespaces need `ip`: install iproute2.")
    name = f"fm{os.getpid() % 10**7}-try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        not_tested(f"This machine permits no network namespaces: {tried.stderr.strip()}")
    _ip("netns", "del", name)


def _ip(*words: str) -> None:
    ran = subprocess.run(["ip", *words], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, f"ip {' '.join(words)}: {ran.stderr}"
