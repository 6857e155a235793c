"""Finds the Chromium to use, and defines how it is started.

`python -m floodmark.sources.cookies.browser` prints its path, with `--all` those of all browsers found. The order is:
FLOODMARK_CHROMIUM, Playwright's own download, Debian's /usr/bin/chromium, Google Chrome.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from floodmark.errors import Permanent

INSTALL = "python -m playwright install chromium"
_VARIABLE = "FLOODMARK_CHROMIUM"
_PACKAGES = ("playwright", "publicsuffixlist")
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_DEFAULT_PATHS = (
    Path("/usr/bin/chromium"),
    Path("/usr/bin/google-chrome"),
    Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"),
    Path("/Applications/Chromium.app/Contents/MacOS/Chromium"),
)
_DOWNLOADED = ("chrome-linux*/chrome", "chrome-mac*/*.app/Contents/MacOS/*", "chrome-win*/chrome.exe")

# The browser must send requests only for the scanned pages.
FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-quic",
    "--disable-sync",
    "--dns-prefetch-disable",
    "--metrics-recording-only",
    "--no-first-run",
    "--no-pings",
    # UDP would bypass the proxy and its guard.
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)
_PLATFORMS = {"darwin": "Macintosh; Intel Mac OS X 10_15_7", "win32": "Windows NT 10.0; Win64; x64"}
_VERSION_SECONDS = 30.0


class BrowserMissing(Permanent):
    """This machine has no browser for scans."""


def require_browser(named: Path | str | None, environ: Mapping[str, str]) -> Path:
    """Return the browser's path; `BrowserMissing`, with an install command, if it or Playwright is missing."""
    if any(importlib.util.find_spec(package) is None for package in _PACKAGES):
        raise BrowserMissing(
            "cookie scans and rendered pages need Playwright, which is not installed",
            hint="install it: pip install 'floodmark[browser]'",
        )
    return find_chromium(named, environ)


def find_chromium(named: Path | str | None, environ: Mapping[str, str]) -> Path:
    """Return the browser's path; `BrowserMissing`, with an install command, if there is none."""
    if named:
        path = Path(named).expanduser()
        if not _is_program(path):
            raise BrowserMissing(
                f"{_VARIABLE} is {named}, which is not a program",
                hint=f"correct it, or unset it to search the default paths: floodmark settings {_VARIABLE}",
            )
        return path
    found = next(_find_all(environ), None)
    if found is None:
        raise BrowserMissing(
            "no Chromium was found, and cookie scans and rendered pages need one",
            hint=f"install one on every machine with workers: {INSTALL}",
        )
    return found


def _find_all(environ: Mapping[str, str]) -> Iterator[Path]:
    yield from filter(_is_program, _find_downloads(environ))
    for name in _PROGRAMS:
        on_path = shutil.which(name, path=environ.get("PATH", os.defpath))
        if on_path is not None:
            yield Path(on_path)
    yield from filter(_is_program, _DEFAULT_PATHS)


def _find_downloads(environ: Mapping[str, str]) -> list[Path]:
    """Return Playwright's downloads, newest first."""
    folder = _download_folder(environ)
    builds = sorted(folder.glob("chromium-*"), key=_build_number, reverse=True) if folder.is_dir() else []
    return [path for build in builds for pattern in _DOWNLOADED for path in sorted(build.glob(pattern))]


def _download_folder(environ: Mapping[str, str]) -> Path:
    if named := environ.get("PLAYWRIGHT_BROWSERS_PATH"):
        return Path(named)
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or "/nonexistent")
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "ms-playwright"
    if sys.platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "ms-playwright"
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "ms-playwright"


def _build_number(folder: Path) -> int:
    found = re.search(r"(\d+)$", folder.name)
    return int(found[1]) if found else 0


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def prepare_profile(folder: Path, *, third_party_cookies: bool) -> None:
    """Write a new profile that allows or blocks third-party cookies.

    Browsers block them by default, which would silently hide them from a scan, and no flag changes that. All contexts
    of the browser inherit the profile's preferences.
    """
    preferences = {
        "profile": {
            "block_third_party_cookies": not third_party_cookies,
            "cookie_controls_mode": 0 if third_party_cookies else 1,
        },
        "webrtc": {"ip_handling_policy": "disable_non_proxied_udp"},
    }
    path = folder / "Default" / "Preferences"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(preferences), encoding="utf-8")


def visitor_flags(executable: str, user_agent: str) -> list[str]:
    """Return the flags that make the browser look like a visitor's, or that set the operator's own `user_agent`.

    Some consent managers show no banner to `navigator.webdriver` or to a headless user agent, so a scan that can be
    recognised would not see a site as visitors do.
    """
    if user_agent:
        return [f"--user-agent={user_agent}"]
    flags = ["--disable-blink-features=AutomationControlled"]
    # Contexts have their own setting, but only this flag reaches shared and service workers.
    if (major := _major_version(executable)) is not None:
        platform = _PLATFORMS.get(sys.platform, "X11; Linux x86_64")
        agent = f"Mozilla/5.0 ({platform}) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{major}.0.0.0 Safari/537.36"
        flags.append(f"--user-agent={agent}")
    return flags


def ordinary_agent(user_agent: str) -> str:
    """Return a headless browser's user agent as that of an ordinary one."""
    return user_agent.replace("HeadlessChrome/", "Chrome/")


def _major_version(executable: str) -> int | None:
    """Return the browser's major version; None if it is unknown, as on Windows."""
    if sys.platform == "win32":
        return None
    command = [executable, "--version"]
    try:
        run = subprocess.run(command, capture_output=True, timeout=_VERSION_SECONDS, check=False)  # noqa: S603 - ours
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(rb"(\d+)\.\d+\.\d+\.\d+", run.stdout)
    return int(found[1]) if found else None


def main() -> int:
    """Print the path of the browser; return 1 if there is none."""
    named = os.environ.get(_VARIABLE)
    try:
        found = [find_chromium(named, os.environ)]
    except BrowserMissing as missing:
        sys.stderr.write(f"{missing}\n{missing.hint}\n")
        return 1
    if "--all" in sys.argv[1:] and not named:
        found = list(dict.fromkeys(_find_all(os.environ)))
    sys.stdout.writelines(f"{path}\n" for path in found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
