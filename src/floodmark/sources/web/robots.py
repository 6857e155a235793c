"""What a site asks of those who come: its robots.txt. Pure."""

import re
from datetime import timedelta

from protego import Protego

# Longer than this between two pages is no delay but a way of saying no; sites that mean it write Disallow.
LONGEST_DELAY = timedelta(hours=1)
MOST_SITEMAPS = 50
_MANY_LINES = 2000
FORBIDDEN = "robots.txt does not allow it"
"""The note of a page that we may not read."""
_COMPATIBLE = re.compile(r"compatible;\s*([A-Za-z0-9_\-]+)")


class Robots:
    """The rules of one robots.txt for us. Without a text everything is allowed."""

    def __init__(self, text: str, agent: str) -> None:
        self._agent = name_of(agent)
        self._rules = Protego.parse(text)
        self._is_open = "disallow" not in text.lower()
        # Each address is compared with each rule.
        self.is_long = text.count("\n") > _MANY_LINES
        said = (line.partition("#")[0].strip() for line in text.splitlines())
        self.terms = "\n".join(line for line in said if line and not line.lower().startswith("sitemap"))
        """What is allowed and forbidden, without remarks."""

    def allows(self, url: str) -> bool:
        """Whether we may read this address."""
        return self._is_open or bool(self._rules.can_fetch(url, self._agent))

    @property
    def delay(self) -> timedelta:
        """How long to wait between two pages."""
        asked = self._rules.crawl_delay(self._agent) or 0.0
        rate = self._rules.request_rate(self._agent)
        if rate is not None and rate.requests:
            asked = max(asked, rate.seconds / rate.requests)
        return min(timedelta(seconds=min(max(asked, 0.0), 1e6)), LONGEST_DELAY)

    @property
    def sitemaps(self) -> list[str]:
        """Where the site lists its pages."""
        return list(self._rules.sitemaps)[:MOST_SITEMAPS]


def name_of(agent: str) -> str:
    """What robots.txt calls a program: `floodmark` of `floodmark/1.0`, `bot` of `Mozilla/5.0 (compatible; bot/2.1)`."""
    hidden = _COMPATIBLE.search(agent)
    return (hidden[1] if hidden else agent.partition("/")[0]).strip() or "floodmark"
