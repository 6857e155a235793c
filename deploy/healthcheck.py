#!/usr/local/bin/python
"""Report the health of the Floodmark process in this container through the exit code.

floodmark-healthcheck            0 if /health reports ok or degraded
floodmark-healthcheck --alive    0 if this process responds, even without a database, which a restart would not fix
"""

import http.client
import os
import sys

# A container has one role and listens on one of these ports.
PORTS = (("PORT", 8060), ("SCHEDULER_PORT", 8061), ("WORKER_PORT", 8062))
# Less than the time-out of the caller, which would only report a time-out.
PATIENCE = 5


def main(arguments: list[str]) -> int:
    """Return 0 if the process is healthy; otherwise print the reason and return 1."""
    is_alive_enough = "--alive" in arguments
    path = "/health/live" if is_alive_enough else "/health"
    answers = [answer for key, default in PORTS if (answer := ask(int(os.environ.get(key) or default), path))]
    if not answers:
        print("No response on the ports of the API, the scheduler and the worker.")
        return 1
    code, body = answers[0]
    print("The process responds." if is_alive_enough else body)
    return 0 if is_alive_enough or code == http.client.OK else 1


def ask(port: int, path: str) -> tuple[int, str] | None:
    """Return the status code and body of the response; None if there is no response."""
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
