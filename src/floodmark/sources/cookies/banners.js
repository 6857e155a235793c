// Finds the button of a consent banner in one frame, open shadow roots included.
// Takes {kind: "accept" | "reject", banners: [{name, accept: [selector], reject: [selector]}], words: [text]}.
// Gives {name, text, element}; the element is null if there is none. Changes nothing.
({ kind, banners, words }) => {
  const roots = [document];
  for (let at = 0; at < roots.length && roots.length < 200; at++) {
    for (const element of roots[at].querySelectorAll("*")) {
      if (element.shadowRoot) roots.push(element.shadowRoot);
    }
  }

  const isVisible = (element) => {
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) return false;
    const style = getComputedStyle(element);
    return style.visibility !== "hidden" && style.display !== "none" && Number(style.opacity) > 0.01;
  };
  const textOf = (element) =>
    (element.innerText || element.value || element.getAttribute("aria-label") || "").replace(/\s+/g, " ").trim();
  const plain = (text) =>
    text.toLowerCase().normalize("NFKC").replace(/[’']/g, "'").replace(/[^\p{L}\p{N}' ]+/gu, " ").replace(/\s+/g, " ").trim();

  // Banners that are known, by the names that their makers give to the buttons.
  for (const banner of banners) {
    for (const selector of banner[kind]) {
      for (const root of roots) {
        for (const element of root.querySelectorAll(selector)) {
          if (isVisible(element)) return { name: banner.name, text: textOf(element).slice(0, 100), element };
        }
      }
    }
  }

  // Any other: a button that says so, inside of something that is about cookies and lies over the page.
  const about = /cookie|consent|gdpr|rgpd|dsgvo|ccpa|privacy|datenschutz|einwillig|tracking|confidentialit|privacid|плик|файл|クッキー/i;
  const marked = /cookie|consent|gdpr|privacy|cmp|notice/i;
  const parentOf = (element) => element.parentElement || (element.getRootNode().host ?? null);
  const isOfBanner = (element) => {
    for (let at = parentOf(element), up = 0; at && at !== document.body && up < 12; at = parentOf(at), up++) {
      const called = `${at.id} ${at.getAttribute("class") || ""} ${at.getAttribute("aria-label") || ""}`;
      const lies = ["fixed", "sticky"].includes(getComputedStyle(at).position);
      const isDialog = at.tagName === "DIALOG" || /dialog/.test(at.getAttribute("role") || "");
      if ((marked.test(called) || lies || isDialog) && about.test(`${called} ${(at.innerText || at.textContent || "").slice(0, 4000)}`)) {
        return true;
      }
    }
    // A banner in a frame of its own has nothing around it.
    return window !== window.top && about.test((document.body?.innerText || "").slice(0, 4000));
  };
  let best = null;
  for (const root of roots) {
    for (const element of root.querySelectorAll("button, a, [role=button], input[type=button], input[type=submit]")) {
      const text = textOf(element);
      if (!text || text.length > 60) continue;
      const rank = words.indexOf(plain(text));
      if (rank < 0 || (best && best.rank <= rank) || !isVisible(element) || !isOfBanner(element)) continue;
      best = { rank, name: "by its words", text, element };
    }
  }
  return best ?? { name: "", text: "", element: null };
}
