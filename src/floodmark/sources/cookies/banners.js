// Finds a consent banner and its buttons in one frame, including its shadow roots. Changes nothing.
// Takes {layer: 1 | 2, table, framed: [name], token}; the table is JSON of managers.toml and words.toml.
// Returns {name, how, buttons: {accept, reject, settings, save}, loaded: [name]}; each button is {text, element, off},
// where `off` are the switches to turn off first. `how` is "maker", "words", or "" if there is no banner.
({ layer, table, framed, token }) => {
  const { managers, words } = JSON.parse(table);
  const MOST_ELEMENTS = 20000;
  const ENOUGH = 4;
  const rootOf = (element) => element.shadowRoot ?? window[token]?.rootOf(element) ?? null;

  const roots = [document];
  const all = [];
  for (let at = 0; at < roots.length && roots.length < 200 && all.length < MOST_ELEMENTS; at++) {
    for (const element of roots[at].querySelectorAll("*")) {
      if (all.length >= MOST_ELEMENTS) break;
      all.push(element);
      const inner = rootOf(element);
      if (inner) roots.push(inner);
    }
  }
  const select = (selectors) => selectors.flatMap((one) => roots.flatMap((root) => [...root.querySelectorAll(one)]));
  const parentOf = (element) => element.parentElement ?? element.getRootNode().host ?? null;
  const holds = (outer, inner) => {
    for (let at = inner; at; at = parentOf(at)) if (at === outer) return true;
    return false;
  };

  const isVisible = (element) => {
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) return false;
    return element.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true });
  };
  // A wrapper may have no size of its own if its content is positioned elsewhere.
  const isOpen = (element) =>
    isVisible(element) ||
    (element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) &&
      [...(rootOf(element) ?? element).querySelectorAll("*")].slice(0, 100).some(isVisible));
  const isOnScreen = (element) => {
    const box = element.getBoundingClientRect();
    return box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
  };
  const spoken = (element) =>
    (element.innerText || element.value || element.getAttribute("aria-label") || element.title || element.textContent || "")
      .replace(/\s+/g, " ")
      .trim();
  const plain = (text) =>
    text
      .toLowerCase()
      .normalize("NFKC")
      .replace(/[’‘`´]/g, "'")
      .replace(/[^\p{L}\p{M}\p{N}' ]+/gu, " ")
      .replace(/\s+/g, " ")
      .trim();

  // Classify a button by its words: {kind, rank}, where the smallest rank is the clearest; null if none match.
  const KINDS = ["reject", "save", "settings", "accept", "dismiss"];
  const exact = new Map();
  for (const kind of KINDS) words[kind].forEach((phrase, rank) => exact.has(phrase) || exact.set(phrase, { kind, rank }));
  const isWord = (text, phrase) => {
    // Writing systems without spaces have no word boundaries.
    if (/[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Hangul}]/u.test(phrase)) return text.includes(phrase);
    return ` ${text} `.includes(` ${phrase} `);
  };
  const meanings = new Map();
  const read = (text) => {
    let best = null;
    for (const [phrase, { kind, rank }] of exact) {
      if (phrase.length < 5 || kind === "dismiss" || text.length > phrase.length * 2.5 || !isWord(text, phrase)) continue;
      if (!best || phrase.length > best.length) best = { kind, rank: rank + 10000, length: phrase.length };
    }
    // "Do not accept" is in the table. Other negations must not count as acceptance.
    return best?.kind === "accept" && words.not.some((one) => isWord(text, one)) ? null : best;
  };
  const meaning = (said) => {
    const text = plain(said);
    if (!text || text.length > 60) return null;
    if (!meanings.has(text)) meanings.set(text, exact.get(text) ?? read(text));
    return meanings.get(text);
  };
  // A button found by selector must not contradict its role by its words.
  const OBJECTIONS = {
    accept: ["reject", "settings"],
    reject: ["accept", "settings", "save"],
    settings: ["accept", "reject", "save"],
    save: ["accept", "reject", "settings"],
  };
  const objects = (kind, element) => {
    const said = meaning(spoken(element));
    return said !== null && said.rank < 10000 && OBJECTIONS[kind].includes(said.kind);
  };

  const BUTTONS = "button, a, [role=button], input";
  const isPressable = (element) => {
    const tag = element.tagName;
    if (tag === "A") {
      // A link to another page is not a button.
      const href = element.getAttribute("href");
      return !href || /^(#|javascript:)/i.test(href) || element.href.split("#")[0] === location.href.split("#")[0];
    }
    if (tag === "BUTTON" || tag === "SUMMARY" || element.getAttribute("role") === "button") return true;
    if (tag === "INPUT") return ["button", "submit", "image"].includes(element.type);
    if (element.closest("button, a, [role=button], label") || element.querySelector(BUTTONS)) return false;
    // Any element can be a button; its style shows it.
    return (
      element.hasAttribute("onclick") ||
      /\b(btn|button|cta)\b|btn[-_]|[-_]btn|button/i.test(element.getAttribute("class") || "") ||
      getComputedStyle(element).cursor === "pointer"
    );
  };

  const switchesIn = (container) => {
    const found = [];
    for (const element of all) {
      if (!holds(container, element)) continue;
      const isOn =
        (element.matches("input[type=checkbox]") && element.checked && !element.disabled && !element.readOnly) ||
        (element.matches("[role=switch][aria-checked=true], [role=checkbox][aria-checked=true]") &&
          element.tagName !== "INPUT" &&
          element.getAttribute("aria-disabled") !== "true" &&
          !element.disabled);
      if (isOn) found.push(element);
    }
    return found;
  };
  const hasSwitches = (container) =>
    all.some((element) => element.matches("input[type=checkbox], [role=switch]") && holds(container, element));

  // Find the best button of each kind by its words in these containers: [{element, score}].
  const byWords = (containers) => {
    const best = {};
    for (const element of all) {
      if (element.childElementCount > 6) continue;
      const length = (element.textContent || element.value || "").length;
      if (length > 200 && !/^(BUTTON|A)$/.test(element.tagName)) continue;
      const said = meaning(spoken(element));
      if (said === null) continue;
      const within = containers.filter((one) => one.element !== element && holds(one.element, element));
      if (!within.length || !isPressable(element) || !isVisible(element)) continue;
      if (within.every((one) => isOfAnotherLayer(element, one.element))) continue;
      const kind = said.kind === "dismiss" ? "accept" : said.kind;
      const rank = said.rank + (said.kind === "dismiss" ? 100000 : 0);
      const score = Math.max(...within.map((one) => one.score));
      const other = best[kind];
      if (other && (other.score > score || (other.score === score && other.rank <= rank))) continue;
      best[kind] = { element, text: spoken(element), rank, score, container: within[0].element };
    }
    return best;
  };

  // Score how likely a container is about cookie consent.
  const called = (element) =>
    `${element.tagName} ${element.id} ${element.getAttribute("class") || ""} ${element.getAttribute("aria-label") || ""} ${element.getAttribute("data-testid") || ""}`;
  const lies = (element) => ["fixed", "sticky"].includes(getComputedStyle(element).position);
  const isDialog = (element) =>
    element.tagName === "DIALOG" || /dialog/.test(element.getAttribute("role") || "") || element.getAttribute("aria-modal") === "true";
  const isLayer = (element) => lies(element) || isDialog(element);
  const textOf = (element) => {
    const own = rootOf(element);
    const inner = own ? [...own.children].map((child) => child.innerText || "").join(" ") : "";
    return `${element.innerText || ""} ${inner}`.slice(0, 8000).toLowerCase();
  };
  const CALLED = /cookie|consent|gdpr|dsgvo|rgpd|ccpa|\bcmp\b|kakor|eväste|cookies?bar|privacy-?(banner|notice|popup|layer|bar)/i;
  const scores = new Map();
  const scoreOf = (element) => {
    if (!scores.has(element)) scores.set(element, judge(element));
    return scores.get(element);
  };
  const judge = (element) => {
    let text = textOf(element);
    // A link to the cookie policy alone does not count.
    for (const link of element.querySelectorAll("a[href]")) {
      const told = (link.innerText || "").trim().toLowerCase();
      if (told.includes(" ") || told.includes("-")) text = text.replace(told, " ");
    }
    for (const one of element.querySelectorAll("button[title], button[aria-label]")) {
      text += ` ${one.title} ${one.getAttribute("aria-label") || ""}`.toLowerCase();
    }
    const isCalled = CALLED.test(called(element));
    const mentions = words.about.some((stem) => text.includes(stem));
    // A layer that appeared when the settings were opened is about consent as well.
    const isOpened = layer === 2 && isLayer(element) && window[token] && !window[token].layers.has(element);
    if (!isCalled && !mentions && !isOpened) return 0;
    const related = words.related.filter((stem) => text.includes(stem)).length;
    const often = words.about.some((stem) => text.split(stem).length > 2);
    let score = (mentions ? 3 : 0) + (often ? 1 : 0) + Math.min(related, 2) + (isCalled ? 3 : 0);
    score += isLayer(element) || (window !== window.top && element === document.body) ? 1 : 0;
    if (layer === 2) score += isOpened ? 4 : 2;
    score -= words.elsewhere.filter((stem) => text.includes(stem)).length ? 3 : 0;
    const asks = (types) => [...element.querySelectorAll(types)].some(isVisible);
    if (asks("input[type=email], input[type=password], input[type=tel]")) score -= 5;
    if (layer === 1 && asks("input[type=text], input:not([type]), textarea, select")) score -= 2;
    return score;
  };
  // Whether a layer about something else is between a button and the container.
  const isOfAnotherLayer = (button, container) => {
    for (let at = parentOf(button); at && at !== container; at = parentOf(at)) {
      const isApart = getComputedStyle(at).position === "fixed" || isDialog(at);
      if (isApart && textOf(at).trim().length > 120 && scoreOf(at) < ENOUGH) return true;
    }
    return false;
  };
  const candidates = () => {
    const found = [];
    for (const element of all) {
      if (element === document.body || element === document.documentElement) continue;
      if (/^(SCRIPT|STYLE|LINK|META|BUTTON|A|INPUT|SVG|IFRAME|IMG)$/.test(element.tagName)) continue;
      const isOver = isLayer(element);
      if (!isOver && !CALLED.test(called(element))) continue;
      if (!isOpen(element)) continue;
      if (getComputedStyle(element).position === "fixed" && isVisible(element) && !isOnScreen(element)) continue;
      // A container of the page itself is not a banner.
      if (!isDialog(element) && element.querySelector("main, [role=main], article")) continue;
      if (!isOver && textOf(element).length > 6000) continue;
      found.push(element);
    }
    // A banner in its own frame has no other content around it.
    if (window !== window.top && document.body) found.push(document.body);
    return found.map((element) => ({ element, score: scoreOf(element) })).filter((one) => one.score >= ENOUGH);
  };

  const firstOf = (kind, selectors) =>
    select(selectors).find((element) => isVisible(element) && !objects(kind, element)) ?? null;
  const button = (element, off = []) => element && { element, text: spoken(element).slice(0, 100), off };

  const isThere = (manager) => {
    if (manager.inside === "frame") return framed.includes(manager.name);
    return manager.marks.some((mark) => roots.some((root) => root.querySelector(mark)));
  };
  const isLoaded = (manager) => manager.globals.some((name) => name in window);
  const there = managers.filter(isThere);
  const loaded = managers.filter((one) => there.includes(one) || isLoaded(one)).map((one) => one.name);

  // The layers over the page before a button is pressed.
  if (layer === 1) all.filter((one) => isLayer(one) && isOpen(one)).forEach((one) => window[token]?.layers.add(one));

  // Known consent managers, by their elements.
  const ofMaker = (manager) => {
    const open = manager.inside === "frame" ? [document.body] : select(manager.shown.length ? manager.shown : manager.marks).filter(isOpen);
    if (layer === 1 && manager.inside === "page" && !open.length) return null;
    const inWords = byWords(open.map((element) => ({ element, score: 100 })));
    const pick = (kind, selectors) => firstOf(kind, selectors) ?? inWords[kind]?.element ?? null;
    const buttons = { accept: button(pick("accept", manager.accept)) };
    const rejects = layer === 1 ? manager.reject : [...manager.settings_reject, ...manager.reject];
    buttons.reject = button(pick("reject", rejects));
    if (layer === 1) buttons.settings = button(pick("settings", manager.settings));
    const save = layer === 1 ? (inWords.save && hasSwitches(inWords.save.container) ? inWords.save.element : null) : pick("save", manager.settings_save);
    if (save) {
      const known = select(manager.settings_off).filter((element) => !element.disabled);
      const around = inWords.save?.container ?? save.closest("dialog, [role*=dialog], form") ?? open[0] ?? document.body;
      buttons.save = button(save, manager.settings_off.length ? known : switchesIn(around));
    }
    return Object.values(buttons).some(Boolean) ? { name: manager.name, how: "maker", buttons, loaded } : null;
  };
  for (const manager of there) {
    const found = ofMaker(manager);
    if (found) return found;
  }

  // Any other banner, by its words.
  const best = byWords(candidates());
  const found = {};
  for (const kind of ["accept", "reject", "settings"]) found[kind] = button(best[kind]?.element ?? null);
  if (best.save && (layer === 2 || hasSwitches(best.save.container))) {
    found.save = button(best.save.element, switchesIn(best.save.container));
  }
  // Settings alone are a link in a footer or of an account.
  const isBanner = layer === 2 ? found.reject || found.save : found.accept || found.reject;
  return isBanner ? { name: "by its words", how: "words", buttons: found, loaded } : { name: "", how: "", buttons: {}, loaded };
}
