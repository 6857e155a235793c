// The script of the dashboard: it keeps pages live, times current and forms on the page. Pages also work without it.
"use strict";

const root = document.body.dataset.root;
const oldest = 2000;            // A page older than this says so, in milliseconds.
const shortestRefresh = 1000;   // The shortest time between two refreshes.
const longestRefresh = 10000;   // A refresh that takes longer has failed.
const spread = 200;             // Open dashboards ask within this time, in milliseconds.
const settleAfter = 1200;       // The time until a page is asked for once more after something happened.
const retryAfter = 2000;        // The time until a failed request is repeated.
const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

/* ---- Times ------------------------------------------------------------------------------------------------ */

let skew = 0; // The clock of the server minus ours.

function readClock(body) {
  if (body.dataset.now) skew = Date.parse(body.dataset.now) - Date.now();
}

function durationText(seconds) {
  for (let at = 0; at < units.length; at++) {
    const [unit, length] = units[at];
    if (seconds >= length) {
      const rest = at + 1 < units.length ? Math.floor((seconds % length) / units[at + 1][1]) : 0;
      return Math.floor(seconds / length) + " " + unit + (rest ? " " + rest + " " + units[at + 1][0] : "");
    }
  }
  return "0 s";
}

function tellTimes() {
  const now = Date.now() + skew;
  for (const element of document.querySelectorAll("time[datetime]")) {
    const away = (Date.parse(element.dateTime) - now) / 1000;
    let text = Math.abs(away) < 1 ? "now" : away > 0 ? "in " + durationText(away) : durationText(-away) + " ago";
    if (away <= 0 && "countdown" in element.dataset) text = "now";
    if (element.textContent !== text) element.textContent = text;
  }
}

function rememberZone() {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const known = document.cookie.split("; ").some((part) => part === "floodmark_zone=" + zone);
  if (zone && !known) document.cookie = "floodmark_zone=" + zone + "; path=/; max-age=31536000; samesite=lax";
  return !known;
}

// The first page that a browser opens does not know its zone yet.
function useZone() {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const field of document.querySelectorAll("input[data-zone]")) {
    if (field.value !== field.defaultValue) continue;
    field.value = zone;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
}

/* ---- Live regions ------------------------------------------------------------------------------------------ */

let feed = null, timer = null, isRefreshing = false;
let heardAt = 0;     // When this page was last known to be current.
let changedAt = 0;   // When something happened that this page may not show yet; 0 if there is nothing.
let isAsking = false; // Whether a question is open.
let isHeld = false;  // Whether a region was left alone because somebody uses it.
let refreshedAt = 0;

function showState(state, text, title) {
  const badge = document.getElementById("live");
  if (!badge || badge.dataset.state === state && badge.textContent === text) return;
  badge.dataset.state = state;
  badge.textContent = text;
  badge.title = title;
}

function tellState() {
  if (!document.body.dataset.live) return;
  const age = Date.now() - (changedAt ? Math.min(changedAt, heardAt) : heardAt);
  const old = durationText(age / 1000) + " old";
  if (heardAt && age <= oldest) showState("on", "live", "Everything on this page is at most 2 seconds old");
  else if (heardAt && isHeld) showState("held", old, "This page is not updated while you type or select text in it");
  else showState("late", heardAt ? old : "connecting", "The connection to the server is lost; this page shows how things were then");
}

function listen() {
  const kinds = document.body.dataset.live;
  if (!kinds || document.hidden || feed) return;
  const query = kinds.split(" ").map((kind) => "only=" + kind).join("&");
  feed = new EventSource(root + "/api/v2/live?beats=true&" + query);
  const heard = () => { heardAt = Date.now(); tellState(); };
  const changed = () => { heard(); refresh(); };
  feed.addEventListener("open", changed);
  feed.addEventListener("beat", heard);
  for (const kind of kinds.split(" ")) feed.addEventListener(kind, changed);
  feed.addEventListener("error", () => {
    if (!feed || feed.readyState !== EventSource.CLOSED) return; // The browser connects again.
    hangUp();
    refresh(); // Without access this leads to the page to sign in.
    setTimeout(listen, retryAfter);
  });
}

function hangUp() {
  if (feed) feed.close();
  feed = null;
  clearTimeout(timer);
  timer = null;
}

function refresh() {
  changedAt = changedAt || Date.now();
  // Soon after the next whole second of the server: it has looked for changes just before, makes the page of all open
  // dashboards once, and answers them one by one.
  later(shortestRefresh - (Date.now() + skew) % shortestRefresh + spread * Math.random());
}

function later(wait) {
  if (timer || isRefreshing || document.hidden) return;
  timer = setTimeout(update, Math.max(0, wait));
}

async function update() {
  timer = null;
  isRefreshing = true;
  refreshedAt = Date.now();
  const before = changedAt;
  changedAt = 0;
  let hasFailed = false;
  try {
    const signal = AbortSignal.timeout(longestRefresh);
    const headers = { "X-Floodmark-Live": "1", "X-Floodmark-Have": versionsHere() };
    const answer = await fetch(location.href, { headers, cache: "no-store", signal });
    if (answer.redirected) { location.reload(); return; }
    if (!answer.ok) throw new Error(answer.statusText);
    isHeld = !swapRegions(await answer.text());
    if (isHeld) changedAt = before || refreshedAt;
    else heardAt = Math.max(heardAt, refreshedAt);
  } catch (error) {
    changedAt = before || refreshedAt;
    hasFailed = true;
  }
  isRefreshing = false;
  tellState();
  if (hasFailed) later(retryAfter);
  else if (changedAt && !isHeld) refresh();
  // Servers share pages for a second, so what happened just now may be missing: look once more.
  else if (before || isHeld) later(settleAfter);
}

// Replace the regions that have changed; return whether none of them was left alone.
function swapRegions(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  let isWhole = true;
  readClock(fresh.body);
  for (const region of document.querySelectorAll("[data-live]:not(body)")) {
    const next = region.id && fresh.getElementById(region.id);
    if (!next || next.isEqualNode(region)) continue;
    if (isInUse(region)) { isWhole = false; continue; }
    const opened = [...region.querySelectorAll("details[open][id]")].map((one) => one.id);
    const chosen = [...region.querySelectorAll("input[type=checkbox]:checked")].map((one) => one.value);
    const focused = region.contains(document.activeElement) ? document.activeElement.id : "";
    const kept = document.importNode(next, true);
    region.replaceWith(kept);
    for (const id of opened) { const one = document.getElementById(id); if (one) one.open = true; }
    for (const box of kept.querySelectorAll("input[type=checkbox]")) if (chosen.includes(box.value)) box.checked = true;
    if (focused) { const one = document.getElementById(focused); if (one) one.focus({ preventScroll: true }); }
  }
  tellTimes();
  countChosen();
  return isWhole;
}

// A region in which somebody types, selects text or has opened a menu is left alone. So are all while a question is
// open: the form that asks must still be there when it is answered.
function isInUse(region) {
  if (isAsking) return true;
  const active = document.activeElement, selection = document.getSelection();
  if (active && region.contains(active) && active.matches("input:not([type=checkbox]), select, textarea")) return true;
  return Boolean(selection && !selection.isCollapsed && region.contains(selection.anchorNode));
}

/* ---- Forms -------------------------------------------------------------------------------------------------- */

async function askFirst(text) {
  const dialog = document.getElementById("ask");
  document.getElementById("ask-text").textContent = text;
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  return dialog.returnValue === "yes";
}

function addField(form, name, value) {
  const field = document.createElement("input");
  Object.assign(field, { type: "hidden", name, value });
  field.dataset.added = "";
  form.append(field);
}

document.addEventListener("submit", async (event) => {
  const form = event.target, button = event.submitter;
  const question = (button && button.dataset.ask) || form.dataset.ask;
  if (question && !form.querySelector("input[name=sure]")) {
    event.preventDefault();
    const count = document.querySelectorAll("[data-choose]:checked").length;
    isAsking = true;
    const isSure = await askFirst(question.replace("{count}", count));
    if (isSure) {
      addField(form, "sure", "yes");
      form.requestSubmit(button);
    }
    isAsking = false;
    return;
  }
  if (form.matches("[data-stays]")) return; // A download: the page stays.
  for (const other of form.querySelectorAll("button[type=submit]")) setTimeout(() => { other.disabled = true; });
});

// A page that comes back from the cache of the browser has its buttons again.
window.addEventListener("pageshow", (event) => {
  for (const button of document.querySelectorAll("button:disabled")) button.disabled = false;
  // The next action asks again.
  for (const field of document.querySelectorAll("input[data-added]")) field.remove();
  if (event.persisted) refresh();
});

document.addEventListener("change", (event) => {
  const element = event.target;
  if (element.matches("[data-choose-all]")) {
    for (const box of document.querySelectorAll("[data-choose]")) box.checked = element.checked;
  }
  if (element.matches("form[data-auto] select, form[data-auto] input")) element.form.requestSubmit();
  countChosen();
});

function countChosen() {
  const count = document.querySelectorAll("[data-choose]:checked").length;
  for (const element of document.querySelectorAll("[data-chosen]")) element.textContent = count + " chosen";
  for (const bar of document.querySelectorAll(".bulk[data-needs]")) bar.hidden = count === 0;
}

// A part of a form that depends on what was typed: the server renders it. `data-preview` is where to ask, `data-target`
// the id of the part, and `data-on="change"` waits until the field is left, or something was pasted.
let previewTimer = null, previewing = null;
document.addEventListener("input", (event) => {
  const part = event.target.closest("[data-preview]");
  if (!part) return;
  const isPasted = event.inputType === "insertFromPaste";
  if (part.dataset.on !== "change" || isPasted) preview(part, isPasted ? 0 : 350);
});
document.addEventListener("change", (event) => {
  const part = event.target.closest("[data-preview]");
  if (part && part.dataset.on === "change") preview(part, 0);
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-preview-button]");
  if (!button) return;
  event.preventDefault();
  showPreview(button.form.querySelector("[data-preview]"), button.form, button);
});

function preview(part, delay) {
  clearTimeout(previewTimer);
  previewTimer = setTimeout(() => showPreview(part, part.closest("form")), delay);
}

async function showPreview(part, form, button) {
  const id = part.dataset.target || "preview", body = new URLSearchParams(new FormData(form));
  if (button) body.append(button.name, button.value);
  if (previewing) previewing.abort();
  const asking = previewing = new AbortController();
  const target = document.getElementById(id);
  if (target) target.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(part.dataset.preview, { method: "POST", body, headers: { "X-Floodmark-Live": "1" }, signal: asking.signal });
    swap(id, new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch (error) {
    if (error.name !== "AbortError" && target) target.removeAttribute("aria-busy"); // What is shown stays; the button still works.
  }
}

function swap(id, fresh) {
  const target = document.getElementById(id), next = fresh.getElementById(id);
  if (!target || !next) return;
  const opened = [...target.querySelectorAll("details[open][id]")].map((one) => one.id);
  const focused = target.contains(document.activeElement) ? document.activeElement.id : "";
  target.replaceWith(document.importNode(next, true));
  for (const one of opened) { const element = document.getElementById(one); if (element) element.open = true; }
  if (focused) { const element = document.getElementById(focused); if (element) element.focus({ preventScroll: true }); }
  tellTimes();
}

// A search within the page: what does not have all words is hidden.
document.addEventListener("input", (event) => {
  const field = event.target.closest("[data-filter]");
  if (!field) return;
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const element of document.querySelectorAll(field.dataset.filter)) {
    element.hidden = !words.every((word) => element.dataset.find.includes(word));
  }
  for (const group of document.querySelectorAll("[data-find-group]")) {
    group.hidden = !group.querySelector("[data-find]:not([hidden])");
  }
});

/* ---- Keyboard, theme ----------------------------------------------------------------------------------------- */

let lastKey = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const before = lastKey;
  lastKey = event.key;
  if (before === "g") {
    const link = document.querySelector('[data-go="' + CSS.escape(event.key) + '"]');
    if (link) { event.preventDefault(); lastKey = ""; location.href = link.href; }
    return;
  }
  if (event.key === "/") { event.preventDefault(); document.getElementById("find").focus(); }
  else if (event.key === "?") document.getElementById("help").showModal();
  else if (event.key === "j" || event.key === "k") moveRow(event.key === "j" ? 1 : -1);
  else if (event.key === "Enter" && event.target.matches("tr[tabindex], [data-row]")) {
    const link = event.target.querySelector("a[href]");
    if (link) location.href = link.href;
  }
});

function moveRow(step) {
  const rows = [...document.querySelectorAll("tr[tabindex], [data-row]")];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement.closest("tr, [data-row]"));
  rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + step))].focus();
}

document.addEventListener("click", (event) => {
  const target = event.target;
  if (target.closest("[data-theme-switch]")) {
    const isDark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    const theme = isDark ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    document.cookie = "floodmark_theme=" + theme + "; path=/; max-age=31536000; samesite=lax";
  }
  if (target.closest("[data-help]")) document.getElementById("help").showModal();
  const copy = target.closest("[data-copy]");
  if (copy) navigator.clipboard.writeText(copy.dataset.copy).then(() => { copy.textContent = "Copied"; });
  for (const menu of document.querySelectorAll("details.user[open]")) if (!menu.contains(target)) menu.open = false;
});

/* ---- Maps and charts ------------------------------------------------------------------------------------------ */

// Arrow keys move among the squares of a map, and Tab leaves it: there may be a thousand.
document.addEventListener("keydown", (event) => {
  const map = event.target.closest("[data-arrows]");
  if (!map || event.ctrlKey || event.metaKey || event.altKey) return;
  const all = [...map.querySelectorAll("a")], at = all.indexOf(event.target);
  if (event.key === "Tab") { all[event.shiftKey ? 0 : all.length - 1].focus({ preventScroll: true }); return; }
  const rows = { ArrowUp: -1, ArrowDown: 1 }[event.key], step = { ArrowLeft: -1, ArrowRight: 1, Home: -at, End: all.length - 1 - at }[event.key];
  const next = rows ? all[at + rows * squaresInRow(all)] : step === undefined ? null : all[at + step];
  if (rows || step !== undefined) event.preventDefault();
  if (next) next.focus();
});

function squaresInRow(all) {
  const second = all.findIndex((one) => one.offsetTop > all[0].offsetTop);
  return second < 0 ? all.length : second;
}

// Large parts of a page that has their newest version are not sent again.
function versionsHere() {
  return [...document.querySelectorAll("[data-version]")].map((one) => one.id + "=" + one.dataset.version).join(" ");
}

// Charts and maps change with time alone, so a page is also asked for again when nothing happens; one with data that no
// event announces (`data-every`) more often.
const idleRefresh = Number(document.body.dataset.every) || 15000;
setInterval(() => { if (feed && !document.hidden && Date.now() - refreshedAt > idleRefresh) refresh(); }, Math.min(5000, idleRefresh / 3));

/* ---- Start ----------------------------------------------------------------------------------------------------- */

document.addEventListener("visibilitychange", () => {
  if (document.hidden) hangUp();
  else { listen(); refresh(); }
});

readClock(document.body);
if (rememberZone()) { useZone(); refresh(); }
tellTimes();
countChosen();
listen();
for (const part of document.querySelectorAll("[data-preview-now]")) preview(part, 0);
setInterval(() => { if (!document.hidden) { tellTimes(); tellState(); } }, 1000);
