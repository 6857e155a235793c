// Runs in every frame before its own scripts. Remembers what a page cannot be asked about later: its closed shadow roots,
// and which script wrote a cookie. `layers` is for banners.js. Kept under a name that is new for each phase; values of cookies are not kept.
// Native functions stay native: a Proxy prints as one.
(token) => {
  const roots = new WeakMap();
  const writes = [];
  const most = 1000;

  const scriptOf = () => {
    const limit = Error.stackTraceLimit;
    Error.stackTraceLimit = 50;
    const stack = String(new Error().stack);
    Error.stackTraceLimit = limit;
    // The innermost caller that has an address; this script has none.
    return stack.match(/((?:https?|blob|data|chrome-extension):[^\s()]+?):\d+:\d+/)?.[1] ?? null;
  };
  const note = (name, domain) => {
    if (writes.length >= most) return;
    const script = scriptOf();
    const bare = (url) => url?.split(/[?#]/)[0];
    writes.push({
      name: String(name).trim().slice(0, 500),
      domain: domain ? String(domain).trim().slice(0, 300) : null,
      script: script?.slice(0, 2000) ?? null,
      isInline: bare(script) === bare(location.href),
      at: (performance.timeOrigin + performance.now()) / 1000,
      host: location.hostname,
    });
  };
  const watch = (method, before, after) =>
    new Proxy(method, {
      apply(target, self, args) {
        try {
          before?.(...args);
        } catch {
          // Whatever a page passes, it gets the answer of the browser.
        }
        const made = Reflect.apply(target, self, args);
        after?.(self, made);
        return made;
      },
    });

  const attach = Object.getOwnPropertyDescriptor(Element.prototype, "attachShadow");
  Object.defineProperty(Element.prototype, "attachShadow", {
    ...attach,
    value: watch(attach.value, null, (self, made) => roots.set(self, made)),
  });
  const cookie = Object.getOwnPropertyDescriptor(Document.prototype, "cookie");
  Object.defineProperty(Document.prototype, "cookie", {
    ...cookie,
    set: watch(cookie.set, (line) => {
      const [pair, ...attributes] = String(line).split(";");
      const domain = attributes.map((part) => part.split("=")).find(([name]) => name.trim().toLowerCase() === "domain");
      note(pair.includes("=") ? pair.split("=")[0] : "", domain?.[1]);
    }),
  });
  if (window.CookieStore) {
    const set = Object.getOwnPropertyDescriptor(CookieStore.prototype, "set");
    Object.defineProperty(CookieStore.prototype, "set", {
      ...set,
      value: watch(set.value, (first) => (typeof first === "object" ? note(first.name, first.domain) : note(first))),
    });
  }
  Object.defineProperty(window, token, {
    value: Object.freeze({ rootOf: (element) => roots.get(element) ?? null, writes, layers: new WeakSet() }),
    enumerable: false,
  });
}
