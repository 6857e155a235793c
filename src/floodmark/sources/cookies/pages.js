// What one frame tells of itself. Values of the storage are measured, not taken along.
() => {
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
  const links = [];
  if (window === window.top) {
    for (const link of document.links) {
      if (links.length >= 2000) break;
      if (!link.hasAttribute("download") && link.href.length <= 2000) links.push(link.href);
    }
  }
  return {
    origin: location.origin,
    local: sizes("localStorage"),
    session: sizes("sessionStorage"),
    title: document.title.slice(0, 300),
    text: (document.body?.innerText || "").slice(0, 2000),
    links,
  };
}
