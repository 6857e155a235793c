#!/usr/bin/env python3
"""The commands to try, test and develop Floodmark. They need only Python 3.11 or newer.

    python3 run.py demo [args]    start Floodmark on SQLite and show it at work
    python3 run.py test [args]    run checks and tests; with args, only pytest with these args
    python3 run.py test --thorough    the same, with the type check and the tests that take long, as CI does
    python3 run.py test --release    every test, on each database, before a release
    python3 run.py check          run format, lint, type and import checks and the fast tests
    python3 run.py bench [name]   run all benchmarks with targets, or one with its own args; --list shows them
    python3 run.py docs           write the generated pages, then build the docs site into dist/docs for offline reading
    python3 run.py screenshots    take the pictures of the dashboard in docs/images, from a running demo
    python3 run.py lock [args]    write both lock files with uv; args go to `uv pip compile`
    python3 run.py clean          remove .venv and all caches

The first command creates .venv next to this file, with uv if it is on PATH, otherwise with pip. `demo` installs what
Floodmark needs to run (requirements.lock); the others add the rest of requirements-dev.lock, if they need it.
Both files pin versions and hashes. If they are missing, `test` also installs Chromium for cookie scans, and Prometheus,
Pushgateway and Alertmanager for dashboards and alerts. Every command runs in this folder, even if you call it from
another one.
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
# Everything in RUN_LOCK, with the same pins, and the packages for tests, checks and benchmarks.
DEV_LOCK = ROOT / "requirements-dev.lock"
# More tests than usual.
LEVELS = ("--thorough", "--release")
FAST_TESTS = ("tests/unit", "tests/fundamentals")
# Programs for the tests of dashboards and alerts: the possible names of each, and its Debian package.
WATCHERS = {
    ("prometheus",): "prometheus",
    ("promtool",): "prometheus",
    ("prometheus-pushgateway", "pushgateway"): "prometheus-pushgateway",
    ("prometheus-alertmanager", "alertmanager"): "prometheus-alertmanager",
    ("amtool",): "prometheus-alertmanager",
}
CACHES = (".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache", "dist")


def main(arguments: list[str]) -> int:
    """Run the command that the first argument names, and return the exit code."""
    require_python()
    commands: dict[str, Callable[[list[str]], int]] = {
        "demo": demo,
        "test": test,
        "check": check,
        "bench": bench,
        "docs": docs,
        "screenshots": screenshots,
        "lock": lock,
        "clean": clean,
    }
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        say(__doc__.strip())
        return 0
    name, *rest = arguments
    if name not in commands:
        fail(f"Unknown command {name!r}. The commands are: {', '.join(commands)}.")
    return commands[name](rest)


def demo(arguments: list[str]) -> int:
    """Replace this process by `floodmark demo`, so that signals and exit code need no forwarding."""
    make_venv(RUN_LOCK)
    os.chdir(ROOT)
    command = [str(BIN / "floodmark"), "demo", *arguments]
    # On Windows exec returns to the terminal before the program ends.
    return run(*command) if os.name == "nt" else os.execve(command[0], command, environ_with_bytecode())


def test(arguments: list[str]) -> int:
    """Run all checks and tests, or with arguments only pytest."""
    make_venv(DEV_LOCK)
    more = [argument for argument in arguments if argument in LEVELS]
    arguments = [argument for argument in arguments if argument not in LEVELS]
    bring_programs(
        browser=is_about(arguments, "cookies"),
        watchers=is_about(arguments, "seeing", "alerts", "dashboards"),
        hosts=is_about(arguments, "chaos"),
    )
    if arguments:
        return pytest(*arguments, *more)
    # In parallel with the tests, because the checks use only one core.
    with ThreadPoolExecutor(1) as beside:
        checks = beside.submit(static_checks, has_types=bool(more))
        if not are_compiled():
            compile_tests()
        code = pytest(*side_by_side(), *more)
        return code or int(bool(checks.result()))


def are_compiled() -> bool:
    """Return whether pytest finds bytecode of nearly all tests. It compiles the others itself."""
    missing = 0
    for test in (ROOT / "tests").rglob("test_*.py"):
        found = (test.parent / "__pycache__").glob(f"{test.stem}.*-pytest-*.pyc")
        missing += all(compiled.stat().st_mtime < test.stat().st_mtime for compiled in found)
    return missing < 20


def compile_tests() -> None:
    """Import all tests once, so that pytest's processes find bytecode. Otherwise each of them compiles everything."""
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    command = [str(BIN / "python"), "-m", "pytest", "--collect-only", "-qq"]
    # An error appears again in the tests, with its text.
    quiet, environ = subprocess.DEVNULL, environ_with_bytecode()
    halves = [
        subprocess.Popen([*command, *half], cwd=ROOT, env=environ, stdout=quiet, stderr=quiet)
        for half in (files[::2], files[1::2])
    ]
    for process in halves:
        process.wait()


def side_by_side() -> list[str]:
    """Return the options for parallel tests: more than two per core, because many tests mostly wait.

    Not more: each process collects all tests and starts its own servers, which takes 10 to 15 seconds of a core.
    """
    return ["-n", str(min(8, 2 * (os.cpu_count() or 1) + 1)), "--no-loadscope-reorder"]


def is_about(arguments: list[str], *words: str) -> bool:
    """Return whether pytest runs such tests: always, unless the arguments name files or folders without them."""
    paths = [path for argument in arguments if (path := ROOT / argument.partition("::")[0]).exists()]
    is_named = any(word in argument for word in words for argument in arguments)
    return is_named or not paths or any(True for path in paths for word in words for _ in path.rglob(word))


def bring_programs(*, browser: bool, watchers: bool, hosts: bool = False) -> None:
    """Install the missing programs among those requested: Chromium, Prometheus with its companions, `ip`.

    Chromium comes from Playwright; everything else, or Chromium if that fails, from Debian's packages if we are root.
    Tests whose program cannot be installed are skipped with a message; with CI=true they fail.
    """
    chromium = bring_browser() if browser else None
    packages = ["chromium"] if browser and chromium is None else []
    if watchers and missing_watchers():
        say("The tests of dashboards and alerts need Prometheus, which is not completely installed.")
        packages += missing_watchers()
    if hosts and sys.platform == "linux" and shutil.which("ip") is None:
        say("The tests with failing networks need `ip`, which is not installed.")
        packages.append("iproute2")
    if packages and can_install():
        end = install_packages(packages)
        if "chromium" in packages:
            chromium = find_browser()
        if (browser and chromium is None) or (watchers and missing_watchers()):
            say(f"That did not help: {end}")
    if browser:
        bring_shell()
        tell_browser(chromium)
    if watchers:
        tell_watchers()


def bring_browser() -> str | None:
    """Return the path of a Chromium that runs; if there is none, download the one of Playwright."""
    found = find_browser()
    if found is None:
        say("The tests of cookie scans need Chromium, which is not installed or does not run.")
        _, end = get("Chromium from Playwright", str(BIN / "python"), "-m", "playwright", "install", "chromium")
        found = find_browser()
        if found is None:
            say(f"That did not help: {end}")
    return found


def bring_shell() -> None:
    """Install Chromium's headless shell if possible: it takes less than half of the CPU time in the dashboard's tests.

    Without it they use Chromium itself.
    """
    if shutil.which("chromium-headless-shell") is None and can_install():
        install_packages(["chromium-headless-shell"])


def can_install() -> bool:
    """Return whether Debian's packages can be installed here."""
    return bool(shutil.which("apt-get")) and hasattr(os, "geteuid") and os.geteuid() == 0


def install_packages(packages: list[str]) -> str:
    """Install packages of Debian in one call, and return the error or exit code."""
    install = ("apt-get", "install", "--yes", "--no-install-recommends", *packages)
    is_done, end = get("Debian's packages", *install)
    if not is_done:
        # A fresh container has no list of packages.
        get("Debian's list of packages", "apt-get", "update")
        _, end = get("Debian's packages", *install)
    return end


def get(what: str, *command: str) -> tuple[bool, str]:
    """Run a command that installs something for the tests. Return whether it succeeded, and its error or exit code."""
    say(f"Installing {what}: {' '.join(command)} ...")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=quiet)
    told = [line.strip() for line in done.stdout.splitlines() if "rror" in line or line.startswith("E:")]
    return done.returncode == 0, told[0] if told else f"it ended with code {done.returncode}"


def tell_browser(found: str | None) -> None:
    """Print which browser the tests use, or that there is none."""
    if found is None:
        say(
            "WARNING: Chromium is missing and cannot be installed, so cookie scans are NOT TESTED"
            " (with CI=true that is a failure).\n"
            "Install it yourself, or set its path: FLOODMARK_CHROMIUM=/path/to/chromium python3 run.py test"
        )
        return
    say(f"- browser: {found}")
    # Every test uses the browser that was checked.
    os.environ["FLOODMARK_CHROMIUM"] = found


def tell_watchers() -> None:
    """Print which Prometheus the tests use, or what is missing."""
    missing = missing_watchers()
    if not missing:
        say(f"- prometheus: {shutil.which('prometheus')}")
        return
    say(
        "WARNING: Prometheus is incomplete and cannot be installed, so dashboards and alerts are NOT TESTED"
        " (with CI=true that is a failure).\n"
        f"Install these Debian packages, or put their programs on PATH: {', '.join(missing)}."
    )


def missing_watchers() -> list[str]:
    """Return the Debian packages of the programs that are not on PATH, each once."""
    missing = [package for names, package in WATCHERS.items() if not any(map(shutil.which, names))]
    return list(dict.fromkeys(missing))


def find_browser() -> str | None:
    """Return the path of the Chromium that a scan would use. It must run: a downloaded one may lack libraries."""
    look_up = [str(BIN / "python"), "-m", "floodmark.sources.cookies.browser", "--all"]
    told = subprocess.run(look_up, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    for path in told.stdout.splitlines():
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if subprocess.run([path, "--version"], capture_output=True, timeout=60, check=False).returncode == 0:
                return path
    return None


def check(_: list[str]) -> int:
    """Run the checks and the fast tests, without servers. Run this before every commit."""
    make_venv(DEV_LOCK)
    failed = static_checks()
    if failed:
        repair = f"{BIN.relative_to(ROOT).as_posix()}/ruff format ."
        fail(f"Failed: {', '.join(failed)} (see above). `{repair}` fixes the format; fix the rest yourself.")
    folders = [folder for folder in FAST_TESTS if (ROOT / folder).is_dir()]
    return pytest(*folders) if folders else 0


def bench(arguments: list[str]) -> int:
    """Run all benchmarks that have a target, list them, or run the one that is named."""
    scripts = {path.stem: path for path in sorted((ROOT / "bench").glob("[!_]*.py"))}
    if arguments[:1] == ["--list"]:
        say("\n".join(f"python3 run.py bench {name:16} {headline(path)}" for name, path in scripts.items()))
        return 0
    if not arguments or arguments[0].startswith("-"):
        make_venv(DEV_LOCK)
        return run(str(BIN / "python"), "-m", "bench", *arguments)
    name, *rest = arguments
    if name not in scripts:
        fail(f"Unknown benchmark {name!r}. `python3 run.py bench --list` lists them.")
    make_venv(DEV_LOCK)
    return run(str(BIN / "python"), "-m", f"bench.{name}", *rest)


def docs(_: list[str]) -> int:
    """Write the generated pages and build the site. A warning, such as a broken link, is an error."""
    make_venv(DEV_LOCK)
    python, site = str(BIN / "python"), ROOT / "dist" / "docs"
    code = run(python, "docs/generate.py")
    code = code or run(python, "-m", "sphinx", "--quiet", "--fail-on-warning", "-b", "html", "docs", str(site))
    if code == 0:
        say(f"The docs are in {site / 'index.html'}")
    return code


def screenshots(_: list[str]) -> int:
    """Take the pictures of the dashboard in a browser."""
    make_venv(DEV_LOCK)
    bring_programs(browser=True, watchers=False)
    return run(str(BIN / "python"), "docs/images/dashboard.py")


def lock(arguments: list[str]) -> int:
    """Pin every dependency for every platform, with hashes and without the name of a package index."""
    uv = find_uv()
    if uv is None:
        fail("The lock files need uv, which is not on PATH. Install it (`pip install uv`) and try again.")
    shape = ("--universal", "--generate-hashes", "--no-header", "--no-annotate", "--python-version", "3.11")
    compile_lock = (uv, "pip", "compile", "--quiet", *shape, "--group", "build", "pyproject.toml", *arguments)
    # The larger file first: its pins are constraints for the smaller one, so both files have the same versions.
    code = run(*compile_lock, "--extra", "dev", "-o", DEV_LOCK.name)
    code = code or run(*compile_lock, "--constraints", DEV_LOCK.name, "-o", RUN_LOCK.name)
    for path in (DEV_LOCK, RUN_LOCK):
        if code == 0 and "://" in path.read_text(encoding="utf-8"):
            fail(f"{path.name} contains a URL, so it works in one network only. Remove the URL and lock again.")
    return code


def clean(_: list[str]) -> int:
    """Remove .venv and all caches."""
    for name in (VENV.name, *CACHES):
        shutil.rmtree(ROOT / name, ignore_errors=True)
    for folder in ("src", "tests", "bench"):
        for cache in (ROOT / folder).rglob("__pycache__"):
            shutil.rmtree(cache, ignore_errors=True)
    return 0


def static_checks(*, has_types: bool = True) -> list[str]:
    """Run all checks and return the names of those that failed. Types take as long as an eighth of the tests."""
    checks = {
        "ruff format": ("ruff", "format", "--check", "--quiet", "."),
        "ruff check": ("ruff", "check", "--quiet", "."),
    }
    if has_types:
        checks["mypy"] = ("mypy",)
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
    """Run pytest in .venv."""
    return run(str(BIN / "python"), "-m", "pytest", *arguments)


def run(*command: str) -> int:
    """Run a command in this folder and return its exit code. After Ctrl-C or SIGTERM, wait until it has ended."""
    with subprocess.Popen(command, cwd=ROOT, env=environ_with_bytecode()) as child:
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        while True:
            try:
                code = child.wait()
            except KeyboardInterrupt:
                # The terminal has sent the signal to the child too, which is now cleaning up.
                continue
            # A negative code is a signal; shells write it as 128 + its number.
            return code if code >= 0 else 128 - code


def environ_with_bytecode() -> dict[str, str]:
    """Return our environment, but let Python save compiled modules, so that the next process starts faster."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def headline(script: Path) -> str:
    """Return the first line of a script's docstring."""
    told = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))
    return told.splitlines()[0] if told else ""


def make_venv(lock_file: Path) -> None:
    """Create or complete .venv, so that it has the packages of this lock file. Return at once if it has them."""
    if is_ready(lock_file):
        return
    with only_one():
        # Another process may have created it while we waited for the lock.
        if is_ready(lock_file):
            return
        uv = find_uv()
        began = time.monotonic()
        if read_stamp() == [fingerprint(RUN_LOCK)]:
            say(f"Adding the development tools to .venv with {'uv' if uv else 'pip'} (once, up to a minute) ...")
            # If this is interrupted, .venv can still be used for RUN_LOCK, and the next attempt starts again.
            write_stamp(fingerprint(RUN_LOCK), "incomplete")
            install_lock(uv, lock_file)
        else:
            say(f"Setting up .venv with {'uv' if uv else 'pip'} (once, up to a minute) ...")
            shutil.rmtree(VENV, ignore_errors=True)
            make_empty_venv(uv)
            install_lock(uv, lock_file)
            pip_install(uv, "--no-build-isolation", "-e", ".")
        # Written last: a .venv without its stamp is incomplete and is created again.
        write_stamp(*(fingerprint(path) for path in dict.fromkeys((RUN_LOCK, lock_file))))
        say(f"Ready after {time.monotonic() - began:.0f} s.")


def is_ready(lock_file: Path) -> bool:
    """Return whether .venv was made from exactly these inputs."""
    return fingerprint(lock_file) in read_stamp()


def read_stamp() -> list[str]:
    """Return the fingerprints of the inputs that .venv was made from."""
    return STAMP.read_text(encoding="utf-8").split() if STAMP.is_file() else []


def write_stamp(*lines: str) -> None:
    """Write the fingerprints of .venv atomically."""
    draft = STAMP.with_name(f"{STAMP.name}.new")
    draft.write_text("\n".join(lines), encoding="utf-8")
    draft.replace(STAMP)


def fingerprint(lock_file: Path) -> str:
    """Hash everything that .venv depends on. This includes its path, because a venv that was moved does not work."""
    import tomllib  # noqa: PLC0415 - an older Python lacks it, and must reach our error message

    read = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    # Without the tool tables: a new lint rule does not require a new installation.
    project = json.dumps([read["build-system"], read["project"]], sort_keys=True)
    parts = [lock_file.read_text(encoding="utf-8"), project, sys.version, platform.machine(), str(ROOT)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def make_empty_venv(uv: str | None) -> None:
    """Create .venv without packages. Without uv this needs the venv module, which Debian has in a separate package."""
    if uv:
        install("uv venv", uv, "venv", "--quiet", "--no-project", "--python", base_python(), str(VENV))
        return
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        fail(
            "This Python has no venv module.\n"
            "Debian and Ubuntu: `sudo apt install python3-venv`. Anywhere: install uv. Then try again."
        )
    install("python3 -m venv", base_python(), "-m", "venv", str(VENV))


def install_lock(uv: str | None, lock_file: Path) -> None:
    """Install the packages of the lock file."""
    # Compiling all modules takes longer than everything else. Modules are compiled when they are first imported.
    pip_install(uv, *(() if uv else ("--no-compile",)), "--require-hashes", "-r", lock_file.name)


def pip_install(uv: str | None, *arguments: str) -> None:
    """Install into .venv without resolving anything: the lock files are complete."""
    interpreter = str(BIN / "python")
    with_uv = (str(uv), "pip", "install", "--python", interpreter)
    with_pip = (interpreter, "-m", "pip", "install", "--disable-pip-version-check", "--no-input")
    install("uv pip install" if uv else "pip install", *(with_uv if uv else with_pip), "--no-deps", *arguments)


def install(what: str, *command: str) -> None:
    """Run one step of the set-up quietly. If it fails, show the end of its output."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-25:])
        fail(
            f"{tail}\n\n`{what}` failed (the end of its output is above), so .venv is incomplete.\n"
            "If a download failed, check the network or your proxy. Then run the same command again:"
            " it starts from the beginning."
        )


def find_uv() -> str | None:
    """Return the uv on PATH if it works: pyenv may leave a shim named uv that only prints an error."""
    uv = shutil.which("uv")
    if uv and subprocess.run([uv, "--version"], capture_output=True, check=False).returncode == 0:
        return uv
    return None


def base_python() -> str:
    """Return the base interpreter: the current one may be in the .venv that will be replaced."""
    return getattr(sys, "_base_executable", None) or sys.executable


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Lock this file, so that two processes do not create .venv at the same time."""
    with contextlib.ExitStack() as held:
        # Windows has no flock: do not start two commands at once there.
        with contextlib.suppress(ImportError):
            import fcntl  # noqa: PLC0415

            fcntl.flock(held.enter_context(open(__file__, encoding="utf-8")), fcntl.LOCK_EX)
        yield


def require_python() -> None:
    """End with an error if this Python is too old."""
    if sys.version_info < (3, 11):  # noqa: UP036 - users may start this file with an older Python
        fail(
            f"Floodmark needs Python 3.11 or newer; this is {platform.python_version()}.\n"
            "Use a newer one (`python3.12 run.py ...`), or let uv install it:"
            " `uv run --no-project --python 3.12 run.py ...`."
        )


def say(line: str) -> None:
    """Print without buffering, so that our lines are in order with those of the commands we run."""
    print(line, flush=True)


def fail(message: str) -> NoReturn:
    """End with an error message that says what to do next."""
    sys.exit(f"\n{message}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
