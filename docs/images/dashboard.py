"""Take the pictures of the dashboard, from a running demo: `python3 run.py screenshots`.

It starts the demo on a free port, waits until there is something to see, and writes `dashboard-<name>.png` beside this
file, in the light theme; the overview also in the dark one. A page that does not exist is left out. Each picture has
at most 256 colours, so that it stays small.
"""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import Browser, sync_playwright

from floodmark.sources.cookies.browser import find_chromium

FOLDER = Path(__file__).parent
WIDTH, HEIGHT = 1280, 800
# The name of a picture, and the page it shows. {job} and {execution} are of a busy channel.
PAGES = {
    "jobs": "/jobs",
    "job": "/jobs/{job}",
    "execution": "/executions/{execution}",
    "collected": "/collected",
    "watch": "/watches/new?query=ferry+OR+bridge&stream=telegram:*",
    "limits": "/limits",
    "workers": "/workers",
    "accounts": "/accounts",
    "triggers": "/triggers",
    "audit": "/audit",
    "docs": "/docs",
    # Last: its charts need some minutes.
    "overview": "/?hours=1",
    "overview-dark": "/?hours=1",
}
TALL = 1360
JOB = "harbour"
# The demo first reads the past of its channels; after that it follows them.
ENOUGH_RUNS, LONGEST_WAIT = 60, 180.0
_SIGNATURE = b"\x89PNG\r\n\x1a\n"

Pixels = NDArray[np.uint8]


def height_of(name: str) -> int:
    """Return the height of a picture; the overview has more to show."""
    return TALL if name.startswith("overview") else HEIGHT


def main() -> None:
    """Take all pictures."""
    with running_demo() as url:
        furnish(url)
        values = {"job": JOB, "execution": wait_for_execution(url)}
        options = ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"]
        with sync_playwright() as playwright:
            path = find_chromium(os.environ.get("FLOODMARK_CHROMIUM"), os.environ)
            browser = playwright.chromium.launch(executable_path=path, args=options)
            for name, page in PAGES.items():
                take(browser, f"{url}{page.format(**values)}", name)
            browser.close()


@contextmanager
def running_demo() -> Iterator[str]:
    """Run the demo in a folder of its own; yields the address of its dashboard."""
    folder = Path(tempfile.mkdtemp(prefix="floodmark-pictures-"))
    command, said = [sys.executable, "-m", "floodmark", "demo", "--fresh", "--port", "0"], folder / "said.log"
    with (
        said.open("w", encoding="utf-8") as log,
        subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as demo,  # noqa: S603 - our own program
    ):
        try:
            yield wait_for_address(said)
        finally:
            demo.kill()
            demo.wait()
            shutil.rmtree(folder)


def wait_for_address(said: Path) -> str:
    """Return the address that the demo prints."""
    deadline = time.monotonic() + LONGEST_WAIT
    while time.monotonic() < deadline:
        found = re.search(r"Dashboard: (\S+)/\n", said.read_text(encoding="utf-8"))
        if found:
            return found[1]
        time.sleep(0.2)
    sys.exit(f"The demo did not start:\n{said.read_text(encoding='utf-8')}")


def furnish(url: str) -> None:
    """Add what the demo does not have."""
    webhook = {"pattern": "/channels/{name}/posted", "jobs": [JOB], "signed": True, "debounce_seconds": 10}
    ask(f"{url}/api/v2/triggers/webhooks", webhook)
    ask(f"{url}/api/v2/triggers/webhooks", {"pattern": "/deploys/*", "jobs": ["weather", "traffic"]})
    ask(f"{url}/api/v2/jobs/theatre/pause", {"reason": "closed for the summer"})


def wait_for_execution(url: str) -> str:
    """Return an execution of the job that has collected something, once there is enough to see."""
    deadline = time.monotonic() + LONGEST_WAIT
    while time.monotonic() < deadline:
        rows = ask(f"{url}/api/v2/executions?job={JOB}&limit=200")["items"]
        full = [row for row in rows if row["state"] == "done" and row["items_new"]]
        if len(ask(f"{url}/api/v2/executions?state=done&limit=200")["items"]) >= ENOUGH_RUNS and full:
            return str(full[0]["execution_id"])
        time.sleep(1)
    sys.exit(f"The demo did not complete {ENOUGH_RUNS} runs within {LONGEST_WAIT:.0f} s.")


def ask(url: str, body: Any = None) -> Any:
    """Return what the API answers; with a body it is sent."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - as above
        return json.loads(answer.read())


def take(browser: Browser, url: str, name: str) -> None:
    """Write the picture of a page, if the page exists."""
    scheme: Any = "dark" if name.endswith("-dark") else "light"
    height = height_of(name)
    context = browser.new_context(viewport={"width": WIDTH, "height": height}, color_scheme=scheme, locale="en-GB")
    page = context.new_page()
    answer = page.goto(url)
    if answer is None or answer.status != 200:
        sys.stdout.write(f"{name}: there is no page {url}\n")
    else:
        # Live pages say so a moment after they were loaded.
        page.locator("#live:not([data-state=late])").wait_for()
        page.wait_for_timeout(2500)
        picture = shrink(page.screenshot())
        (FOLDER / f"dashboard-{name}.png").write_bytes(picture)
        sys.stdout.write(f"{name}: {len(picture) / 1000:.0f} KB\n")
    context.close()


def shrink(png: bytes) -> bytes:
    """Return the same picture with at most 256 colours, and compressed as far as possible."""
    pixels = read_png(png)
    palette, chosen = choose_colours(pixels)
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 3, 0, 0, 0)
    rows = np.hstack([np.zeros((len(chosen), 1), np.uint8), chosen])
    body = zlib.compress(rows.tobytes(), 9)
    chunks = ((b"IHDR", head), (b"PLTE", palette.tobytes()), (b"IDAT", body), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def choose_colours(pixels: Pixels) -> tuple[Pixels, Pixels]:
    """Return the 256 most frequent colours, and for each pixel the number of the nearest one."""
    flat = pixels.reshape(-1, 3).astype(np.int32)
    packed = (flat[:, 0] << 16) | (flat[:, 1] << 8) | flat[:, 2]
    found, inverse, counts = np.unique(packed, return_inverse=True, return_counts=True)
    kept = found[np.argsort(-counts, kind="stable")[:256]]
    colours = np.stack([kept >> 16, (kept >> 8) & 255, kept & 255], axis=1)
    everything = np.stack([found >> 16, (found >> 8) & 255, found & 255], axis=1)
    distances = ((everything[:, None, :] - colours[None, :, :]) ** 2).sum(axis=2)
    nearest = distances.argmin(axis=1).astype(np.uint8)
    return colours.astype(np.uint8), nearest[inverse.reshape(-1)].reshape(pixels.shape[:2])


def read_png(png: bytes) -> Pixels:
    """Return the pixels of a picture with 8 bits for each of red, green and blue, as browsers write it."""
    chunks = dict[bytes, bytes]()
    at = len(_SIGNATURE)
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        chunks[kind] = chunks.get(kind, b"") + png[at + 8 : at + 8 + length]
        at += length + 12
    width, height, depth, colour_type = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    size = {2: 3, 6: 4}[colour_type]
    assert depth == 8
    raw = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + width * size)
    rows, above = list[Pixels](), np.zeros((width, size), np.uint8)
    for line in raw:
        above = _unfilter(int(line[0]), line[1:].reshape(width, size), above)
        rows.append(above)
    return np.stack(rows)[:, :, :3]


def _unfilter(kind: int, line: Pixels, above: Pixels) -> Pixels:
    """Return a row of pixels; PNG stores differences to the pixels on the left and above."""
    if kind == 0:
        return line
    if kind == 1:
        return np.cumsum(line, axis=0, dtype=np.uint8)
    if kind == 2:
        return line + above
    made, size = line.tolist(), line.shape[1]
    left, corner = [0] * size, [0] * size
    for at, (pixel, up) in enumerate(zip(made, above.tolist(), strict=True)):
        guess = _average if kind == 3 else _paeth
        left = [(pixel[n] + guess(left[n], up[n], corner[n])) & 255 for n in range(size)]
        made[at], corner = left, up
    return np.array(made, np.uint8)


def _average(left: int, up: int, _: int) -> int:
    return (left + up) // 2


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda one: abs(guess - one))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


if __name__ == "__main__":
    main()
