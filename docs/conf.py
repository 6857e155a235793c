"""Configuration of the docs site: `python3 run.py docs` builds it into dist/docs with Sphinx, for offline reading.

The pages are plain Markdown, so that they can also be read in a repository browser. The menu is made from the links of
index.md, section by section, and from the links of each README.md to the pages in its folder.
"""

import re
from collections.abc import Iterator

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "Floodmark"
extensions = ["myst_parser"]
myst_heading_anchors = 4
# Commands in sentences must stay as they are typed, without curly quotes and long dashes.
smartquotes = False

html_theme = "furo"
html_title = "Floodmark"
html_copy_source = False
html_use_index = False
html_show_sphinx = False
# The site contains no host name, so it cannot link to the source of a page.
html_theme_options: dict[str, list[str]] = {"top_of_page_buttons": []}

_LINK = re.compile(r"\]\(([^)#:\s]+\.md)\)")


def setup(app: Sphinx) -> None:
    """Connect the menu. Mermaid diagrams would need a script, so they stay text; each page repeats them as ASCII."""
    app.add_lexer("mermaid", TextLexer)
    app.connect("source-read", _add_menu)


def _add_menu(app: Sphinx, page: str, source: list[str]) -> None:
    if page == "index":
        _, *sections = re.split(r"^## ", source[0], flags=re.MULTILINE)
        source[0] += "".join(_menu(_linked(section), caption=section.splitlines()[0]) for section in sections)
    elif page.endswith("/README"):
        source[0] += _menu(one for one in _linked(source[0]) if "/" not in one)


def _linked(text: str) -> Iterator[str]:
    return (link.removesuffix(".md") for link in dict.fromkeys(_LINK.findall(text)) if not link.startswith(".."))


def _menu(pages: Iterator[str], caption: str = "") -> str:
    options = [":hidden:", ":titlesonly:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, "", *pages, "```", ""])
