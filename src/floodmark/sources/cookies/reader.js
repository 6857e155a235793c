// Returns the content of one frame. Only the sizes of stored values are read.
// Takes the global name of the records of observer.js.
async (token) => {
  const sizes = (name) => {
    try {
      const area = window[name];
      const found = [];
      for (let at = 0; at < area.length && at < 1000; at++) {
        const key = area.key(at);
        found.push([key.slice(0, 500), key.length + (area.getItem(key) || "").length]);
      }
      return found;
    } catch {
      // Frames without an origin have no storage.
      return [];
    }
  };
  // Some promises never settle, for instance of a database that another tab is changing.
  const soon = (work, otherwise) =>
    Promise.race([
      Promise.resolve()
        .then(work)
        .catch(() => otherwise),
      new Promise((done) => setTimeout(() => done(otherwise), 1500)),
    ]);
  const storesOf = (name) =>
    new Promise((done) => {
      const asked = indexedDB.open(name);
      // The database was deleted meanwhile: do not create it.
      asked.onupgradeneeded = () => asked.transaction.abort();
      asked.onerror = () => done([]);
      asked.onsuccess = () => {
        const names = [...asked.result.objectStoreNames].slice(0, 20);
        asked.result.close();
        done(names);
      };
    });
  const databases = async () => {
    const found = (await indexedDB.databases()).slice(0, 100);
    return Promise.all(
      found.map(async ({ name, version }) => {
        const stores = await soon(() => storesOf(name), []);
        return [name.slice(0, 500), `version ${version}${stores.length ? `, object stores: ${stores.join(", ").slice(0, 500)}` : ""}`];
      }),
    );
  };
  const cached = async () => {
    const names = (await caches.keys()).slice(0, 100);
    return Promise.all(
      names.map(async (name) => {
        const count = await soon(async () => (await (await caches.open(name)).keys()).length, 0);
        return [name.slice(0, 500), `${count} stored response${count === 1 ? "" : "s"}`];
      }),
    );
  };
  const workers = async () => {
    const found = (await navigator.serviceWorker.getRegistrations()).slice(0, 100);
    return found.map((one) => {
      const script = (one.active ?? one.waiting ?? one.installing)?.scriptURL ?? "";
      return [script.slice(0, 500), `for ${one.scope.slice(0, 500)}`];
    });
  };
  const links = [];
  if (window === window.top) {
    for (const link of document.links) {
      if (links.length >= 2000) break;
      if (!link.hasAttribute("download") && link.href.length <= 2000) links.push(link.href);
    }
  }
  // What a consent manager of the TCF has recorded; it may not answer.
  const recorded = () =>
    new Promise((done) => {
      if (window !== window.top || typeof window.__tcfapi !== "function") return done(null);
      window.__tcfapi("addEventListener", 2, (data, isGood) => {
        if (data?.listenerId !== undefined) window.__tcfapi("removeEventListener", 2, () => {}, data.listenerId);
        done(isGood && typeof data?.tcString === "string" ? data.tcString.slice(0, 40000) : null);
      });
    });
  const [indexeddb, cache, worker, tcString] = await Promise.all([
    soon(databases, []),
    soon(cached, []),
    soon(workers, []),
    soon(recorded, null),
  ]);
  return {
    origin: location.origin,
    local: sizes("localStorage"),
    session: sizes("sessionStorage"),
    indexeddb,
    cache,
    worker,
    tcString,
    agent: navigator.userAgent,
    isDriven: navigator.webdriver === true,
    writes: (window[token]?.writes ?? []).slice(0, 1000),
    title: document.title.slice(0, 300),
    text: (document.body?.innerText || "").slice(0, 2000),
    links,
  };
}
