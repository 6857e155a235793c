#!/usr/bin/env python3
"""Floodmark's one command: it needs Python 3.11 or newer and nothing else.

    python3 run.py demo [args]    start Floodmark on SQLite and show it at work
    python3 run.py test [args]    run every check and every test; with args, only pytest with these args
    python3 run.py test --thorough    the same, with the tests that take long, as in CI
    python3 run.py check          run format, lint, type and import checks and the fast tests
    python3 run.py bench [name]   list the benchmarks, or run one with its own args
    python3 run.py docs           write the generated pages, then build the docs site into dist/docs for offline reading
    python3 run.py lock [args]    write both lock files with uv; args go to `uv pip compile`
    python3 run.py clean          remove .venv and all caches

The first start makes .venv beside this file, with uv if it is on PATH and with pip otherwise. `demo` installs
requirements.lock, which is what Floodmark needs to run; `test`, `check`, `bench` and `docs` add the rest of
requirements-dev.lock. Both files pin versions and hashes. `test` also installs Chromium for the cookie scans, and
Prometheus, Pushgateway and Alertmanager for dashboards and alerts, if they are missing. Every command runs in this
folder, wherever you call it from.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
STAMP = VENV / ".stamp"
RUN_LOCK = ROOT / "requirements.lock"
# Everything in RUN_LOCK, with the same pins, and what tests, checks and benchmarks need.
DEV_LOCK = ROOT / "requirements-dev.lock"
FAST_TESTS = ("tests/unit", "tests/fundamentals")
# What dashboards and alerts are tested with: each program by the names it goes by, and Debian's package of it.
WATCHERS = {
    ("prometheus",): "prometheus",
    ("promtool",): "prometheus",
    ("prometheus-pushgateway", "pushgateway"): "prometheus-pushgateway",
    ("prometheus-alertmanager", "alertmanager"): "prometheus-alertmanager",
    ("amtool",): "prometheus-alertmanager",
}
CACHES = (".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache", "dist")


def main(arguments: list[str]) -> int:
    """Do what the first argument names; the result is the exit code."""
    require_python()
    commands: dict[str, Callable[[list[str]], int]] = {
        "demo": demo,
        "test": test,
        "check": check,
        "bench": bench,
        "docs": docs,
        "lock": lock,
        "clean": clean,
    }
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        say(__doc__.strip())
        return 0
    name, *rest = arguments
    if name not in commands:
        fail(f"There is no command {name!r}. Try one of: {', '.join(commands)}.")
    return commands[name](rest)


def demo(arguments: list[str]) -> int:
    """Become `floodmark demo`, so that its signals and exit code are its own."""
    make_venv(RUN_LOCK)
    os.chdir(ROOT)
    command = [str(BIN / "floodmark"), "demo", *arguments]
    # On Windows exec gives the terminal back before the program ends.
    return run(*command) if os.name == "nt" else os.execve(command[0], command, environ_with_bytecode())


def test(arguments: list[str]) -> int:
    """Run everything, or only what the arguments tell pytest. The last line on screen is always pytest's."""
    make_venv(DEV_LOCK)
    thorough = [argument for argument in arguments if argument == "--thorough"]
    arguments = [argument for argument in arguments if argument != "--thorough"]
    bring_programs(
        browser=is_about(arguments, "cookies"),
        watchers=is_about(arguments, "seeing", "alerts", "dashboards"),
        hosts=is_about(arguments, "chaos"),
    )
    if arguments:
        return pytest(*arguments, *thorough)
    # Beside the tests: one check after the other keeps only one core busy.
    with ThreadPoolExecutor(1) as beside:
        checks = beside.submit(static_checks)
        code = pytest(*side_by_side(), *thorough)
        return code or int(bool(checks.result()))


def side_by_side() -> list[str]:
    """Everything takes a while, and much of that is waiting: two tests more at a time than there are cores."""
    return ["-n", str(min(6, 2 + (os.cpu_count() or 1))), "--no-loadscope-reorder"]


def is_about(arguments: list[str], *words: str) -> bool:
    """Whether pytest runs tests of this kind: it does, unless it is told of files and folders that hold none."""
    paths = [path for argument in arguments if (path := ROOT / argument.partition("::")[0]).exists()]
    is_named = any(word in argument for word in words for argument in arguments)
    return is_named or not paths or any(True for path in paths for word in words for _ in path.rglob(word))


def bring_programs(*, browser: bool, watchers: bool, hosts: bool = False) -> None:
    """Let there be a Chromium that runs, Prometheus with its companions, and `ip`, as far as they are wanted.

    What is installed is used; else Playwright downloads its Chromium; else root installs Debian's packages, all at
    once. Where something cannot be had the tests that need it are skipped, which they say; with CI=true they fail.
    """
    chromium = bring_browser() if browser else None
    packages = ["chromium"] if browser and chromium is None else []
    if watchers and missing_watchers():
        say("Prometheus is not complete here, which dashboards and alerts are tested with.")
        packages += missing_watchers()
    if hosts and sys.platform == "linux" and shutil.which("ip") is None:
        say("There is no `ip` here, which makes the hosts whose networks fail in tests (by root alone).")
        packages.append("iproute2")
    if packages and shutil.which("apt-get") and hasattr(os, "geteuid") and os.geteuid() == 0:
        end = install_packages(packages)
        if "chromium" in packages:
            chromium = find_browser()
        if (browser and chromium is None) or (watchers and missing_watchers()):
            say(f"That did not help: {end}")
    if browser:
        tell_browser(chromium)
    if watchers:
        tell_watchers()


def bring_browser() -> str | None:
    """A Chromium that runs: one that is installed, else Playwright's download."""
    found = find_browser()
    if found is None:
        say("No Chromium runs here, which cookie scans are tested with.")
        _, end = get("Playwright's own", str(BIN / "python"), "-m", "playwright", "install", "chromium")
        found = find_browser()
        if found is None:
            say(f"That did not help: {end}")
    return found


def install_packages(packages: list[str]) -> str:
    """Debian's packages, all at once; how it ended."""
    install = ("apt-get", "install", "--yes", "--no-install-recommends", *packages)
    is_done, end = get("Debian's packages", *install)
    if not is_done:
        # A fresh container does not know yet which packages there are.
        get("Debian's list of packages", "apt-get", "update")
        _, end = get("Debian's packages", *install)
    return end


def get(what: str, *command: str) -> tuple[bool, str]:
    """Run a command that brings something which tests need: whether it went well, and how it ended."""
    say(f"Getting {what}: {' '.join(command)} ...")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=quiet)
    told = [line.strip() for line in done.stdout.splitlines() if "rror" in line or line.startswith("E:")]
    return done.returncode == 0, told[0] if told else f"it ended with code {done.returncode}"


def tell_browser(found: str | None) -> None:
    """Say which browser is used, or that there is none."""
    if found is None:
        say(
            "WARNING: there is no Chromium and none can be had, so cookie scans are NOT TESTED"
            " (with CI=true that is a failure).\n"
            "Install one by hand, or name it: FLOODMARK_CHROMIUM=/path/to/chromium python3 run.py test"
        )
        return
    say(f"- browser: {found}")
    # So that every test uses the one that was seen to run.
    os.environ["FLOODMARK_CHROMIUM"] = found


def tell_watchers() -> None:
    """Say which Prometheus is used, or what is missing."""
    missing = missing_watchers()
    if not missing:
        say(f"- prometheus: {shutil.which('prometheus')}")
        return
    say(
        "WARNING: Prometheus is not complete and cannot be had, so dashboards and alerts are NOT TESTED"
        " (with CI=true that is a failure).\n"
        f"Install what Debian calls {', '.join(missing)}, and put it on PATH."
    )


def missing_watchers() -> list[str]:
    """The packages of programs that are not on PATH, each once."""
    missing = [package for names, package in WATCHERS.items() if not any(map(shutil.which, names))]
    return list(dict.fromkeys(missing))


def find_browser() -> str | None:
    """The Chromium that a scan would use, if it runs; one that was only downloaded may lack libraries."""
    look_up = [str(BIN / "python"), "-m", "floodmark.sources.cookies.browser", "--all"]
    told = subprocess.run(look_up, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    for path in told.stdout.splitlines():
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if subprocess.run([path, "--version"], capture_output=True, timeout=60, check=False).returncode == 0:
                return path
    return None


def check(_: list[str]) -> int:
    """What to run before every commit: no servers, seconds rather than minutes."""
    make_venv(DEV_LOCK)
    failed = static_checks()
    if failed:
        repair = f"{BIN.relative_to(ROOT).as_posix()}/ruff format ."
        fail(f"Failed: {', '.join(failed)} (see above). `{repair}` repairs the format; the rest is by hand.")
    folders = [folder for folder in FAST_TESTS if (ROOT / folder).is_dir()]
    return pytest(*folders) if folders else 0


def bench(arguments: list[str]) -> int:
    """Without a name, say which benchmarks there are; with one, run it."""
    scripts = {path.stem: path for path in sorted((ROOT / "bench").glob("[!_]*.py"))}
    if not arguments:
        say("\n".join(f"python3 run.py bench {name:16} {headline(path)}" for name, path in scripts.items()))
        return 0
    name, *rest = arguments
    if name not in scripts:
        fail(f"There is no benchmark {name!r}. `python3 run.py bench` lists them.")
    make_venv(DEV_LOCK)
    return run(str(BIN / "python"), "-m", f"bench.{name}", *rest)


def docs(_: list[str]) -> int:
    """Write the generated pages and build the site; a warning, such as a link that leads nowhere, is an error."""
    make_venv(DEV_LOCK)
    python, site = str(BIN / "python"), ROOT / "dist" / "docs"
    code = run(python, "docs/generate.py")
    code = code or run(python, "-m", "sphinx", "--quiet", "--fail-on-warning", "-b", "html", "docs", str(site))
    if code == 0:
        say(f"The docs are in {site / 'index.html'}")
    return code


def lock(arguments: list[str]) -> int:
    """Pin every dependency for every platform, with hashes and without the name of a package index."""
    uv = find_uv()
    if uv is None:
        fail("uv makes the lock files, and it is not on PATH. Install it (`pip install uv`) and try again.")
    shape = ("--universal", "--generate-hashes", "--no-header", "--no-annotate", "--python-version", "3.11")
    compile_lock = (uv, "pip", "compile", "--quiet", *shape, "--group", "build", "pyproject.toml", *arguments)
    # The larger one first: its pins then hold for the smaller one, so that both always agree.
    code = run(*compile_lock, "--extra", "dev", "-o", DEV_LOCK.name)
    code = code or run(*compile_lock, "--constraints", DEV_LOCK.name, "-o", RUN_LOCK.name)
    for path in (DEV_LOCK, RUN_LOCK):
        if code == 0 and "://" in path.read_text(encoding="utf-8"):
            fail(f"{path.name} names a host, which ties it to one network. Remove the URL and lock again.")
    return code


def clean(_: list[str]) -> int:
    """Remove what can be made again."""
    for name in (VENV.name, *CACHES):
        shutil.rmtree(ROOT / name, ignore_errors=True)
    for folder in ("src", "tests", "bench"):
        for cache in (ROOT / folder).rglob("__pycache__"):
            shutil.rmtree(cache, ignore_errors=True)
    return 0


def static_checks() -> list[str]:
    """Run all checks and return the names of those that failed."""
    checks = {
        "ruff format": ("ruff", "format", "--check", "--quiet", "."),
        "ruff check": ("ruff", "check", "--quiet", "."),
        "mypy": ("mypy",),
    }
    if (ROOT / ".importlinter").exists():
        checks["lint-imports"] = ("lint-imports",)
    failed = []
    for name, (tool, *options) in checks.items():
        command, environ = [str(BIN / tool), *options], environ_with_bytecode()
        done = subprocess.run(
            command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode != 0:
            failed.append(name)
            say(f"\n{name} failed:\n{done.stdout}")
    say(f"\nFailed checks: {', '.join(failed)} (see above)." if failed else f"\nChecks passed: {', '.join(checks)}.")
    return failed


def pytest(*arguments: str) -> int:
    """Run pytest in the project's own environment."""
    return run(str(BIN / "python"), "-m", "pytest", *arguments)


def run(*command: str) -> int:
    """Run a command in this folder to its very end, even when told to stop; the result is its exit code."""
    with subprocess.Popen(command, cwd=ROOT, env=environ_with_bytecode()) as child:
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        while True:
            try:
                code = child.wait()
            except KeyboardInterrupt:
                # The terminal sent it to the child too, which is now cleaning up.
                continue
            # A negative code is a signal; shells write it as 128 + its number.
            return code if code >= 0 else 128 - code


def environ_with_bytecode() -> dict[str, str]:
    """Our environment, in which Python may save compiled modules: the next process need not compile them again."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def headline(script: Path) -> str:
    """The first line of a script's docstring."""
    told = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))
    return told.splitlines()[0] if told else ""


def make_venv(lock_file: Path) -> None:
    """Make .venv, or complete it, so that it holds what this lock file pins. Return at once if it does."""
    if is_ready(lock_file):
        return
    with only_one():
        # Another process may have made it while we waited.
        if is_ready(lock_file):
            return
        uv = find_uv()
        began = time.monotonic()
        if read_stamp() == [fingerprint(RUN_LOCK)]:
            say(f"Adding the development tools to .venv with {'uv' if uv else 'pip'} (once, up to a minute) ...")
            # If this is interrupted, .venv still serves RUN_LOCK, and the next attempt starts from nothing.
            write_stamp(fingerprint(RUN_LOCK), "incomplete")
            install_lock(uv, lock_file)
        else:
            say(f"Setting up .venv with {'uv' if uv else 'pip'} (once, up to a minute) ...")
            shutil.rmtree(VENV, ignore_errors=True)
            make_empty_venv(uv)
            install_lock(uv, lock_file)
            pip_install(uv, "--no-build-isolation", "-e", ".")
        # Written last: a .venv without its stamp is not complete and is made from nothing.
        write_stamp(*(fingerprint(path) for path in dict.fromkeys((RUN_LOCK, lock_file))))
        say(f"Ready after {time.monotonic() - began:.0f} s.")


def is_ready(lock_file: Path) -> bool:
    """Whether .venv holds exactly these inputs."""
    return fingerprint(lock_file) in read_stamp()


def read_stamp() -> list[str]:
    """The fingerprints of what .venv holds."""
    return STAMP.read_text(encoding="utf-8").split() if STAMP.is_file() else []


def write_stamp(*lines: str) -> None:
    """Say what .venv holds, in one step that cannot be seen half done."""
    draft = STAMP.with_name(f"{STAMP.name}.new")
    draft.write_text("\n".join(lines), encoding="utf-8")
    draft.replace(STAMP)


def fingerprint(lock_file: Path) -> str:
    """Hash everything that decides what .venv must hold. Its place counts too: a venv that was moved is broken."""
    import tomllib  # noqa: PLC0415 - an older Python lacks it, and must get as far as our message

    read = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    # Not the tool tables: a new lint rule is no reason to install everything again.
    project = json.dumps([read["build-system"], read["project"]], sort_keys=True)
    parts = [lock_file.read_text(encoding="utf-8"), project, sys.version, platform.machine(), str(ROOT)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def make_empty_venv(uv: str | None) -> None:
    """Make .venv without packages. A distribution may have split off the module that this needs without uv."""
    if uv:
        install("uv venv", uv, "venv", "--quiet", "--no-project", "--python", base_python(), str(VENV))
        return
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        fail(
            "This Python comes without its venv module.\n"
            "Debian and Ubuntu: `sudo apt install python3-venv`. Anywhere: install uv. Then try again."
        )
    install("python3 -m venv", base_python(), "-m", "venv", str(VENV))


def install_lock(uv: str | None, lock_file: Path) -> None:
    """Install what the lock file pins."""
    # Modules are compiled when they are first imported: compiling them all takes longer than everything else, and only
    # a part is ever imported.
    pip_install(uv, *(() if uv else ("--no-compile",)), "--require-hashes", "-r", lock_file.name)


def pip_install(uv: str | None, *arguments: str) -> None:
    """Install into .venv without resolving anything: the lock files are complete."""
    interpreter = str(BIN / "python")
    with_uv = (str(uv), "pip", "install", "--python", interpreter)
    with_pip = (interpreter, "-m", "pip", "install", "--disable-pip-version-check", "--no-input")
    install("uv pip install" if uv else "pip install", *(with_uv if uv else with_pip), "--no-deps", *arguments)


def install(what: str, *command: str) -> None:
    """Run one quiet step of the setup; if it fails, show how it ended."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-25:])
        fail(
            f"{tail}\n\n`{what}` failed (above is the end of what it said), so .venv is not complete.\n"
            "If it could not download, check the network or your proxy. Then run the same command again:"
            " it starts from nothing."
        )


def find_uv() -> str | None:
    """The uv on PATH, if it works: pyenv leaves a shim named uv that only complains."""
    uv = shutil.which("uv")
    if uv and subprocess.run([uv, "--version"], capture_output=True, check=False).returncode == 0:
        return uv
    return None


def base_python() -> str:
    """The interpreter behind us: the one we run on may lie in the very .venv that is to be made anew."""
    return getattr(sys, "_base_executable", None) or sys.executable


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Let two starts at the same time make .venv one after the other. This file itself is the lock."""
    with contextlib.ExitStack() as held:
        # Windows has no flock; there, do not start twice at once.
        with contextlib.suppress(ImportError):
            import fcntl  # noqa: PLC0415

            fcntl.flock(held.enter_context(open(__file__, encoding="utf-8")), fcntl.LOCK_EX)
        yield


def require_python() -> None:
    """Stop with advice on a Python that is too old."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this file is what an older Python meets first
        fail(
            f"Floodmark needs Python 3.11 or newer; this is {platform.python_version()}.\n"
            "Call a newer one (`python3.12 run.py ...`), or let uv bring it:"
            " `uv run --no-project --python 3.12 run.py ...`."
        )


def say(line: str) -> None:
    """Print at once, so that our lines stay in order with those of the commands we run."""
    print(line, flush=True)


def fail(message: str) -> NoReturn:
    """Stop: the message tells what to do next."""
    sys.exit(f"\n{message}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
