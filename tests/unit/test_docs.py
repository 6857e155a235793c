"""What README.md, CONTRIBUTING.md and the pages of docs/ show is there: links, anchors, names, commands, options."""

import ast
import asyncio
import importlib
import importlib.util
import inspect
import json
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from command_line import CommandLine, eventually
from floodmark import Floodmark
from floodmark.cli import app
from floodmark.settings import Settings, keys
from floodmark.wiring.resources import open_resources
from system.channel_posts import DAY, a_post, keep

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
# A command as it is typed, possibly inside another one; what follows it on the line ends at a comment, a pipe, or the
# explanation beside it.
COMMAND = re.compile(
    r"(?:^|\$ ?\(?|[:(] ?|-- |exec \S+ |^[A-Z_]+=\S+ )floodmark (?P<typed>[a-z-](?:[^#|&;<>`)\s]|\s(?!\s))*)"
)
# A path of the repository (but no hidden file, which users make), a module that is started, a command of run.py.
PATH = re.compile(r"(?:src|tests|docs|deploy|bench)/(?!.*\.env)[\w./-]+")
MODULE = re.compile(r"python3? -m (floodmark[\w.]*)")
RUN = re.compile(r"run\.py ([a-z]+)")
SETTING = re.compile(r"^(?:\$ )?(?:export )?([A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+)(?:=.*)?$", re.MULTILINE)
# What looks like a setting of Floodmark, and belongs to the tests, to containers, or to other programs.
OTHERS = {
    *("FLOODMARK_CHAOS_KILLS", "FLOODMARK_CHAOS_SEED", "FLOODMARK_FAILPOINT", "FLOODMARK_IMAGE", "FLOODMARK_PULL"),
    "FLOODMARK_TARGET",
    *("AUTH_KEY_DUPLICATED", "CRON_TZ", "FLOOD_WAIT", "RLIMIT_NOFILE", "SSL_CERT_FILE", "TELEGRAM_SESSION"),
    # Options of sinks, without the name of the sink.
    *("CA_FILE", "MAX_BYTES"),
    # Settings of the examples.
    *("MASTODON_TOKEN", "NDJSON_TOKEN", "NDJSON_URL"),
    *("OTEL_RESOURCE_ATTRIBUTES", "OTEL_SDK_DISABLED", "OTEL_TRACES_SAMPLER"),
}
# What a browser would load from another host, unlike a link that a reader may follow.
LOADED = re.compile(r"""(?:src=|@import|url\(|<link\b[^>]*rel="[^>]*href=)["' ]*(?:https?:)?//[^"' )>]+""")
ROOT_COMMAND: Any = typer.main.get_command(app)


class Block(NamedTuple):
    """A code block; the language is empty where none is named."""

    language: str
    text: str


@cache
def _tokens(page: Path) -> list[Token]:
    return MarkdownIt("gfm-like", {"linkify": False}).parse(page.read_text("utf-8"))


def _inline(page: Path) -> Iterator[Token]:
    return (child for token in _tokens(page) for child in token.children or [])


def _blocks(page: Path) -> Iterator[Block]:
    return (
        Block(token.info.strip(), token.content) for token in _tokens(page) if token.type in {"fence", "code_block"}
    )


def _wrong(faults: Callable[[Path], Iterator[str]]) -> dict[str, list[str]]:
    """What is wrong on which page."""
    found = {str(page.relative_to(ROOT)): list(faults(page)) for page in PAGES}
    return {page: said for page, said in found.items() if said}


# Links


def test_every_link_leads_somewhere() -> None:
    assert _wrong(_broken_links) == {}


def _broken_links(page: Path) -> Iterator[str]:
    for token in _inline(page):
        link = str(token.attrs.get("href") or token.attrs.get("src") or "")
        if not link or "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        is_found = target.exists() and target.is_relative_to(ROOT)
        if not is_found or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
            yield link


@cache
def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as repository browsers and the site make them."""
    titles = [text.content for mark, text in pairwise(_tokens(page)) if mark.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


# Python and data


def test_python_parses_and_uses_names_that_exist() -> None:
    assert _wrong(_python_faults) == {}


def _python_faults(page: Path) -> Iterator[str]:
    for block in _blocks(page):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text, str(page))):
                yield from _unknown_names(node)


def _unknown_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "floodmark":
        module = importlib.import_module(node.module)
        yield from (f"{node.module}.{one.name}" for one in node.names if not hasattr(module, one.name))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "collector":
        known = inspect.signature(Floodmark.collector).parameters
        yield from (f"collector({one.arg}=)" for one in node.keywords if one.arg and one.arg not in known)


def test_data_parses() -> None:
    assert _wrong(_data_faults) == {}


def _data_faults(page: Path) -> Iterator[str]:
    parsers: dict[str, Callable[[str], Any]] = {"json": _json, "toml": tomllib.loads, "yaml": yaml.safe_load}
    for block in _blocks(page):
        try:
            parsers.get(block.language, str)(block.text)
        except (ValueError, yaml.YAMLError) as error:
            yield str(error)


def _json(text: str) -> Any:
    """One document, or one a line."""
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


# Commands


def test_commands_and_options_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install_example(tmp_path, "mastodon")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert _wrong(lambda page: (f"{typed}: {fault}" for typed in _typed(page) if (fault := _fault(typed)))) == {}


def _install_example(folder: Path, name: str) -> None:
    """Write the metadata of an example package, as an installer does; the tests can import its module."""
    metadata = folder / f"floodmark_{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: floodmark-{name}\nVersion: 1.0\n")
    groups = tomllib.loads((ROOT / "docs/examples" / name / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [
        line
        for group, values in groups["entry-points"].items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in values.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))


def _typed(page: Path) -> Iterator[str]:
    """What is typed after `floodmark`, in blocks and in the prose."""
    for line in _shell(page).splitlines():
        yield from (found["typed"] for found in COMMAND.finditer(line))


@cache
def _shell(page: Path) -> str:
    """What a reader may type or set: blocks in no other language, and code in the prose."""
    blocks = [block.text for block in _blocks(page) if block.language in {"", "sh", "console"}]
    return "\n".join([*blocks, *(token.content for token in _inline(page) if token.type == "code_inline")])


def _fault(typed: str) -> str | None:
    """What is wrong with a command line, if anything."""
    command, words = ROOT_COMMAND, iter(re.sub(r"[\"'\[\]]", " ", typed).split())
    for word in words:
        name = word.partition("=")[0]
        if word in {"--", "..."}:
            break
        if len(name) > 1 and name.startswith("-"):
            if name not in _options(command) | _options(ROOT_COMMAND) | {"--help": False, "-h": False}:
                return f"no option {name}"
            if command is ROOT_COMMAND and _options(command).get(name) and name == word:
                next(words)
        elif hasattr(command, "get_command"):
            command = command.get_command(None, word)
            if command is None:
                return f"no command {word}"
    return None


@cache
def _options(command: Any) -> dict[str, bool]:
    """The options of a command, and whether each takes a value."""
    options = [one for one in command.params if one.param_type_name == "option"]
    return {name: not one.is_flag for one in options for name in (*one.opts, *one.secondary_opts)}


def test_paths_modules_and_commands_of_run_py_exist() -> None:
    commands = set(RUN.findall((ROOT / "run.py").read_text("utf-8")))

    def missing(page: Path) -> Iterator[str]:
        inline = [token.content for token in _inline(page) if token.type == "code_inline"]
        yield from (one for one in inline if PATH.fullmatch(one) and not (ROOT / one).exists())
        yield from (one for one in MODULE.findall(_shell(page)) if importlib.util.find_spec(one) is None)
        yield from (one for one in RUN.findall(_shell(page)) if one not in commands)

    assert _wrong(missing) == {}


def test_settings_exist() -> None:
    known = {*keys(), *OTHERS}
    # Options of sinks: tests/delivering/test_documented.py. Users name the secrets of crawls.
    pattern = re.compile(rf"{'|'.join(known)}|SINK_\w+|WEB_SECRET_\w+")
    assert _wrong(lambda page: (name for name in SETTING.findall(_shell(page)) if not pattern.fullmatch(name))) == {}


# What the pages show is what happens


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    cli = CommandLine(tmp_path, PYTHON_MODULES="")
    (tmp_path / "feeds.py").unlink()
    return cli


@pytest.mark.spec("G8")
def test_the_first_program_collects(cli: CommandLine) -> None:
    """The README and the tutorial show the same program and the same posts."""
    program, posts = _first(ROOT / "README.md")
    assert (program, posts) == _first(ROOT / "docs/tutorial/first-five-minutes.md")
    (cli.folder / "feeds.py").write_text(program, "utf-8")
    (cli.folder / "posts.jsonl").write_text(posts, "utf-8")

    with cli.running("up", "--app", "feeds:app", "--port", "0"):
        eventually(lambda: "The ferry is back" in cli("events", "--after", "0").out)


def _first(page: Path) -> tuple[str, str]:
    found = {block.language: block.text for block in reversed(list(_blocks(page)))}
    return found["python"], found["json"]


@pytest.mark.spec("G9")
def test_errors_are_shown_as_they_are(cli: CommandLine) -> None:
    shown = "\n".join(block.text for block in _blocks(ROOT / "docs/how-to/troubleshooting.md"))
    cases = re.findall(r"^\$ floodmark (.+)\n(Error: (?:.+\n?)+)", shown, re.MULTILINE)
    assert len(cases) >= 5
    assert {typed: cli(*shlex.split(typed)).err.strip() for typed, _ in cases} == {
        typed: said.strip() for typed, said in cases
    }


@pytest.mark.spec("G9")
def test_troubleshooting_lists_every_finding_of_the_doctor(cli: CommandLine) -> None:
    listed = re.findall(r"`([^`]+)`", (ROOT / "docs/how-to/troubleshooting.md").read_text("utf-8"))
    assert {finding["code"] for finding in cli("doctor", "--json").json} <= set(listed)


@pytest.mark.spec("B6")
@pytest.mark.thorough
def test_exported_files_are_read_as_shown(cli: CommandLine) -> None:
    """The commands of the page write the files that its programs read; DuckDB, pandas and polars agree."""
    (cli.folder / ".floodmark").mkdir()
    asyncio.run(_collect_posts(cli.folder / ".floodmark"))
    page = ROOT / "docs/how-to/export.md"
    commands = next(block.text for block in _blocks(page) if block.text.count("--out") == 3)
    for line in commands.splitlines():
        cli.good(*shlex.split(line)[1:])
    asyncio.run(_collect_posts(cli.folder / ".floodmark", "edited"))
    cli.good(*shlex.split(commands.splitlines()[0])[1:])
    programs = [block.text for block in _blocks(page) if block.language == "python"]

    duck, panda, polar = (_run_program(text) for text in programs)

    expected = [(date(2026, 6, 1), 30), (date(2026, 6, 2), 70), (date(2026, 6, 3), 50)]
    assert duck["by_day"] == expected
    assert duck["photos"] == [(1,)]
    assert list(panda["by_day"].items()) == expected
    assert list(panda["table"]["text"]) == ["=1", "News", "News", "News", "News", "News"]
    assert str(panda["table"]["date"].dtype).endswith("UTC]")
    assert polar["by_day"].rows() == expected
    assert polar["lines"].height == 6


async def _collect_posts(home: Path, text: str = "=1") -> None:
    async with open_resources(Settings(database_url=f"sqlite:///{home}/floodmark.db")) as resources:
        posts = [a_post(n, views=n * 10, at=DAY + n * timedelta(hours=10)) for n in range(1, 6)]
        await keep(resources, [a_post(0, text, views=0, media={"type": "photo"}), *posts])


def _run_program(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(text, names)
    return names


# What is generated


def test_generated_files_are_current() -> None:
    files = runpy.run_path(str(ROOT / "docs/generate.py"))["files"]()
    stale = [path for path, text in files.items() if (ROOT / path).read_text("utf-8") != text]
    assert not stale, "run: python3 run.py docs"


# The site


def build_site(builder: str, folder: Path) -> None:
    build = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "-b", builder]
    done = subprocess.run([*build, ROOT / "docs", folder], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.timeout(300)
@pytest.mark.thorough
def test_the_site_has_no_warnings(tmp_path: Path) -> None:
    """A broken link and a page that no menu lists are warnings. The files are only written with `--release`."""
    build_site("dummy", tmp_path)


@pytest.mark.release
@pytest.mark.timeout(300)
def test_the_site_works_offline(tmp_path: Path) -> None:
    """`python3 run.py docs` builds it."""
    build_site("html", tmp_path)
    for page in [*tmp_path.rglob("*.html"), *tmp_path.rglob("*.css"), *tmp_path.rglob("*.svg")]:
        assert not LOADED.findall(page.read_text("utf-8")), page.name


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150
