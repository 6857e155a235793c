#!/usr/local/bin/python
"""Tells by its exit code whether the Floodmark process in this container is well.

floodmark-healthcheck            0 if all that is due is collected: /health says ok or degraded
floodmark-healthcheck --alive    0 if this process answers at all: a restart would not bring back a database
"""

import http.client
import os
import sys

# A container is one role, and only that one listens.
PORTS = (("PORT", 8060), ("SCHEDULER_PORT", 8061), ("WORKER_PORT", 8062))
# Less than the timeout of whoever calls this, who would say only that it took too long.
PATIENCE = 5


def main(arguments: list[str]) -> int:
    """0 if all is well; otherwise 1, and a line that says why not."""
    is_alive_enough = "--alive" in arguments
    path = "/health/live" if is_alive_enough else "/health"
    answers = [answer for key, default in PORTS if (answer := ask(int(os.environ.get(key) or default), path))]
    if not answers:
        print("Nothing answers at the ports of the API, the scheduler and the worker.")
        return 1
    code, body = answers[0]
    print("It answers." if is_alive_enough else body)
    return 0 if is_alive_enough or code == http.client.OK else 1


def ask(port: int, path: str) -> tuple[int, str] | None:
    """The answer from there, with its status code; None if nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read(4096).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
