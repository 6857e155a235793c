// Runs in every frame before its own scripts. Records what cannot be read later: closed shadow roots, and which script
// wrote a cookie (not its value). `layers` is for banners.js. The records have a new global name in each phase.
// Patched functions still look native: a Proxy prints as the function it wraps.
(token) => {
  const roots = new WeakMap();
  const writes = [];
  const most = 1000;

  const scriptOf = () => {
    const limit = Error.stackTraceLimit;
    Error.stackTraceLimit = 50;
    const stack = String(new Error().stack);
    Error.stackTraceLimit = limit;
    // The innermost caller with a URL; this script has none.
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
          // Invalid arguments: the browser itself must handle them.
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
