"""A shop and a tracker on one loopback TLS server, and hosts that behave badly: what cookie scans are tried on.

    shop.test       a banner in words; cookies by header and by script; a frame of the tracker
    tracker.test    the third party: a frame, a pixel and a script
    plain.test      no banner at all
    framed.test     no banner, but the frame of the tracker
    blocked.test    403 to everyone
    maze.test       links three deep, a cookie on each page, no banner
    stuck.test      its page never ends
    flaky.test      fails twice, then works
    once.test       its page does not end the first time; after that it does, and sets a cookie
    inside.test     asks for an address that is not public
    portal.test     shows in its title what the browser tells it; records choices in a TC string, and consent even if
                    it was refused; counts visitors at metrics.portal.test, an alias of another party
    visitor.test    a banner for visitors alone: late, in a closed shadow root, rejected on its second layer; stores all

Everything that was asked for is in `asked`, as "host path". `later` is more of what the script of the shop does.
Runs in a thread of its own, whatever the loop of the test does.
"""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from aiohttp import web

from certificates import self_signed
from floodmark.testing.web.serving import serve_app

_NAMES = (
    "shop",
    "tracker",
    "plain",
    "framed",
    "blocked",
    "maze",
    "stuck",
    "flaky",
    "once",
    "inside",
    "visitor",
    "portal",
)
HOSTS = (*(f"{name}.test" for name in _NAMES), "metrics.portal.test")
RESOLVE = ", ".join(f"{host}=127.0.0.1" for host in HOSTS)
YEAR = 31_536_000

FRONT = """<!doctype html><title>Shop</title><meta charset=utf-8>
<body style="font: 16px sans-serif"><h1>Shop</h1><p>Fine things, without a captcha. <a href="/more">More</a></p>
<iframe src="https://tracker.test:%(port)d/frame" width=200 height=50></iframe>
<img src="https://tracker.test:%(port)d/pixel.gif" width=1 height=1>
<div class="cookie-layer" style="position:fixed;bottom:0;background:#eee;padding:20px">
We use cookies. <button id=yes>Alle akzeptieren</button> <button id=no>Alle ablehnen</button></div>
<script>
document.cookie = "_ga=GA1.1.1; Max-Age=63072000; path=/; Secure; SameSite=Lax";
localStorage.setItem("theme", "dark"); sessionStorage.setItem("tab", "1");
const answered = (how) => { document.cookie = `consent=${how}; Max-Age=86400; path=/`;
  document.querySelector(".cookie-layer").remove(); };
if (document.cookie.includes("consent=")) document.querySelector(".cookie-layer").remove();
document.getElementById("yes")?.addEventListener("click", () => { answered("yes");
  const script = document.createElement("script"); script.src = "https://tracker.test:%(port)d/ads.js";
  document.head.append(script); });
document.getElementById("no")?.addEventListener("click", () => answered("no"));
%(later)s
</script>"""
FRAME = """<!doctype html><title>frame</title><script>
document.cookie = "tp_js=1; path=/; Secure; SameSite=None";
try { localStorage.setItem("visitor", "7"); } catch {}
</script>"""
ADS = """document.cookie = "_fbp=fb.1; Max-Age=7776000; path=/; Secure; SameSite=Lax";
new Image().src = "https://tracker.test:%(port)d/ads.gif";"""
INSIDE = """<!doctype html><title>inside</title><h1>Hello</h1><img src="http://169.254.169.254/latest/meta-data/">
<img src="https://127.0.0.1:%(port)d/secret"><img src="https://[::1]:%(port)d/secret">"""


FRAMED = """<!doctype html><title>Framed</title><iframe src="https://tracker.test:%(port)d/frame"></iframe>"""
MAZE = """<!doctype html><title>%(path)s</title><a href="%(on)s">on</a> <a href="https://maze.test:%(port)d/a#top">A</a>
<a href="/list.pdf">List</a> <a href="/logout">Leave</a> <a href="https://tracker.test:%(port)d/about">Tracker</a>
<script>localStorage.setItem("odd\\0\\ud800", "x"); document.title += "\\ud800";</script>"""


VISITOR = """<!doctype html><title>Visitor</title><meta charset=utf-8><h1>For visitors</h1>
<div role=dialog style="position:fixed;top:0">Our newsletter, see the <a href=/c>cookie policy</a>. <input type=email>
<button onclick="document.cookie = 'newsletter=1'">I agree</button></div>
<div id=host></div><script src=/count.js></script><script>
caches.open("pages").then((cache) => cache.put("/a", new Response("a")));
const asked = indexedDB.open("visitors", 3);
asked.onupgradeneeded = () => asked.result.createObjectStore("people");
const isProgram = navigator.webdriver || /headless|bot/i.test(navigator.userAgent)
  || navigator.userAgentData.brands.some((one) => /headless/i.test(one.brand));
if (!isProgram) setTimeout(() => {
  const root = document.getElementById("host").attachShadow({mode: "closed"});
  root.innerHTML = `<div style="position:fixed;bottom:0;background:#eee">Wir verwenden Cookies.
    <div class=btn id=yes>Alle akzeptieren</div><div class=btn id=more>Einstellungen</div></div>`;
  const choose = (how) => { document.cookie = `choice=${how}; Max-Age=86400`; root.innerHTML = ""; };
  root.getElementById("yes").onclick = () => choose("all");
  root.getElementById("more").onclick = () => {
    root.innerHTML = `<div style="position:fixed;top:0">Cookies
      <label><input type=checkbox checked id=s>Statistik</label><button>Alle akzeptieren</button>
      <button id=save>Auswahl speichern</button></div>`;
    root.getElementById("save").onclick = () => { document.cookie = "_gid=1";
      choose(root.getElementById("s").checked ? "all" : "none"); };
  };
}, 2500);
</script>"""


PORTAL = """<!doctype html><title>Portal</title><meta charset=utf-8><h1>Portal</h1>
<div class="cookie-layer" style="position:fixed;bottom:0;background:#eee">Wir verwenden Cookies.
<button onclick="choose(1)">Alle akzeptieren</button> <button onclick="choose(2)">Alle ablehnen</button></div>
<script>
const strings = %(strings)s;
let chosen = 0;
window.__tcfapi = (command, version, callback) => callback({tcString: strings[chosen], listenerId: 1}, true);
const choose = (how) => { chosen = how; document.querySelector(".cookie-layer").remove(); };
document.cookie = "_ga=GA1.1.1; Max-Age=34560000; path=/; Secure; SameSite=Lax";
new Image().src = "https://metrics.portal.test:%(port)d/pixel.gif";
navigator.permissions.query({name: "geolocation"}).then((found) => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  document.title = [navigator.language, zone, navigator.globalPrivacyControl, found.state].join(" ");
});
</script>"""


class Shop:
    """`with Shop(folder) as shop`: then `shop.domain("shop.test")` can be scanned."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = 0
        self.asked: Counter[str] = Counter()
        self.agents: list[str] = []
        self.tc_strings: tuple[str, str, str] = ("", "", "")
        """What the portal has recorded before a choice, after accepting, and after rejecting."""
        self.headers: dict[str, str] = {}
        """Those of the last request to the portal."""
        self.later = ""
        self.held = threading.Event()
        """Set when somebody waits for a page that does not end."""
        self._loop = asyncio.new_event_loop()
        self._release = asyncio.Event()
        self._serving = AsyncExitStack()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def domain(self, host: str) -> str:
        return f"{host}:{self.port}"

    def __enter__(self) -> "Shop":
        self._thread.start()
        self._do(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    def _app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _open(self) -> None:
        tls, _ = self_signed(self._folder, *HOSTS)
        self.port = await self._serving.enter_async_context(serve_app(self._app(), tls=tls, shutdown_timeout=0.1))

    async def _close(self) -> None:
        self._release.set()
        await self._serving.aclose()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        host = request.host.partition(":")[0]
        self.asked[f"{host} {request.path}"] += 1
        if request.path == "/favicon.ico":
            return web.Response(status=404)
        answer: web.StreamResponse = await getattr(self, f"_{host.partition('.')[0]}")(request)
        return answer

    def _page(self, text: str, status: int = 200) -> web.Response:
        filled = text % {"port": self.port, "later": self.later} if "%(" in text else text
        return web.Response(text=filled, content_type="text/html", status=status)

    async def _shop(self, request: web.Request) -> web.StreamResponse:
        if request.path != "/":
            return self._page("<title>About us</title>")
        answer = self._page(FRONT)
        answer.set_cookie("PHPSESSID", "abc", httponly=True, secure=True, samesite="Lax")
        return answer

    async def _maze(self, request: web.Request) -> web.StreamResponse:
        on = {"/": "/a", "/a": "/a/b", "/a/b": "/a/b/c"}.get(request.path, "/")
        answer = self._page(MAZE % {"path": request.path, "on": on, "port": self.port})
        answer.set_cookie(f"page{request.path.replace('/', '_')}", "1", max_age=YEAR, secure=True)
        return answer

    async def _tracker(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/frame":
            answer = self._page(FRAME)
            answer.headers.add("Set-Cookie", f"tp_none=1; Max-Age={YEAR}; Path=/; Secure; SameSite=None")
            answer.headers.add("Set-Cookie", "tp_chips=1; Path=/; Secure; SameSite=None; Partitioned")
            return answer
        if request.path == "/ads.js":
            return web.Response(text=ADS % {"port": self.port}, content_type="text/javascript")
        answer = web.Response(body=b"GIF89a\x01\x00\x01\x00\x00\x00\x00;", content_type="image/gif")
        if request.path == "/ads.gif":
            answer.headers.add("Set-Cookie", "ads=1; Path=/; Secure; HttpOnly; SameSite=None")
        return answer

    async def _plain(self, _: web.Request) -> web.StreamResponse:
        return self._page(
            "<title>Plain</title><h1>Nothing here</h1><button onclick=\"document.cookie='pressed=1'\">OK</button>"
        )

    async def _framed(self, _: web.Request) -> web.StreamResponse:
        return self._page(FRAMED)

    async def _blocked(self, _: web.Request) -> web.StreamResponse:
        answer = self._page("<title>403</title>Go away", status=403)
        answer.set_cookie("bouncer", "1")
        return answer

    async def _stuck(self, request: web.Request) -> web.StreamResponse:
        self.held.set()
        answer = web.StreamResponse(headers={"Content-Type": "text/html", "Set-Cookie": "early=1; Path=/"})
        await answer.prepare(request)
        await answer.write(b"<title>Stuck</title><p>More is to come")
        await self._release.wait()
        return answer

    async def _once(self, request: web.Request) -> web.StreamResponse:
        is_first = self.asked["once.test /"] == 1
        return await (self._stuck(request) if is_first else self._maze(request))

    async def _flaky(self, request: web.Request) -> web.StreamResponse:
        count = self.asked[f"flaky.test {request.path}"]
        return self._page("<title>Broken</title>", status=500) if count <= 2 else self._page("<title>Works</title>")

    async def _visitor(self, request: web.Request) -> web.StreamResponse:
        self.agents.append(request.headers["User-Agent"])
        if request.path == "/count.js":
            return web.Response(text="document.cookie = '_ga=1; Max-Age=63072000';", content_type="text/javascript")
        return self._page(VISITOR)

    async def _portal(self, request: web.Request) -> web.StreamResponse:
        self.headers = {name.lower(): value for name, value in request.headers.items()}
        return self._page(PORTAL % {"strings": json.dumps(self.tc_strings), "port": self.port})

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        answer = web.Response(body=b"GIF89a\x01\x00\x01\x00\x00\x00\x00;", content_type="image/gif")
        answer.headers.add("Set-Cookie", f"s_vi=1; Max-Age={2 * YEAR}; Domain=portal.test; Path=/; Secure")
        return answer

    async def _inside(self, _: web.Request) -> web.StreamResponse:
        return self._page(INSIDE)
