// The script of the dashboard: it keeps pages live, times current and forms on the page. Pages also work without it.
"use strict";

const root = document.body.dataset.root;
const oldest = 2000;            // A page older than this says so, in milliseconds.
const shortestRefresh = 1000;   // The shortest time between two refreshes.
const sharedFor = 1200;         // The server shares a page for a second: an answer may be older than the event before it.
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

let feed = null, heardAt = 0, happenedAt = 0, refreshedAt = 0, timer = null, isRefreshing = false, isStale = false;

function showState(state, text, title) {
  const badge = document.getElementById("live");
  if (!badge || badge.dataset.state === state && badge.textContent === text) return;
  badge.dataset.state = state;
  badge.textContent = text;
  badge.title = title;
}

function tellState() {
  if (!document.body.dataset.live) return;
  const age = Date.now() - heardAt;
  if (heardAt && age <= oldest) showState("on", "live", "Everything on this page is at most 2 seconds old");
  else {
    const text = heardAt ? durationText(age / 1000) + " old" : "connecting";
    showState("late", text, "The connection to the server is lost; this page shows how things were then");
  }
}

function listen() {
  const kinds = document.body.dataset.live;
  if (!kinds || document.hidden || feed) return;
  const query = kinds.split(" ").map((kind) => "only=" + kind).join("&");
  feed = new EventSource(root + "/api/v2/live?beats=true&" + query);
  const heard = () => { heardAt = Date.now(); tellState(); };
  feed.addEventListener("open", () => { heard(); refresh(); });
  feed.addEventListener("beat", heard);
  for (const kind of kinds.split(" ")) feed.addEventListener(kind, () => { heard(); happenedAt = Date.now(); refresh(); });
  feed.addEventListener("error", () => { if (feed && feed.readyState === EventSource.CLOSED) { hangUp(); setTimeout(listen, 2000); } });
}

function hangUp() {
  if (feed) feed.close();
  feed = null;
}

function refresh() {
  isStale = true;
  if (timer || isRefreshing || document.hidden) return;
  timer = setTimeout(update, Math.max(0, refreshedAt + shortestRefresh - Date.now()));
}

async function update() {
  timer = null;
  isRefreshing = true;
  isStale = false;
  refreshedAt = Date.now();
  try {
    const answer = await fetch(location.href, { headers: { "X-Floodmark-Live": "1" }, cache: "no-store" });
    if (answer.redirected) { location.reload(); return; }
    if (answer.ok) swapRegions(await answer.text());
  } catch (error) {
    tellState(); // The connection is lost; the feed connects again and then refreshes.
  } finally {
    isRefreshing = false;
    if (isStale || refreshedAt < happenedAt + sharedFor) refresh();
  }
}

function swapRegions(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  readClock(fresh.body);
  for (const region of document.querySelectorAll("[data-live]:not(body)")) {
    const next = region.id && fresh.getElementById(region.id);
    if (!next || next.isEqualNode(region) || isInUse(region)) continue;
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
}

// A region in which somebody types, selects text or has opened a menu is left alone.
function isInUse(region) {
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
    if (!await askFirst(question.replace("{count}", count))) return;
    addField(form, "sure", "yes");
    form.requestSubmit(button);
    return;
  }
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

function preview(part, delay) {
  clearTimeout(previewTimer);
  previewTimer = setTimeout(() => showPreview(part, part.closest("form")), delay);
}

async function showPreview(part, form) {
  const id = part.dataset.target || "preview", body = new URLSearchParams(new FormData(form));
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
  else if (event.key === "Enter" && event.target.matches("tr[tabindex]")) {
    const link = event.target.querySelector("a[href]");
    if (link) location.href = link.href;
  }
});

function moveRow(step) {
  const rows = [...document.querySelectorAll("tr[tabindex]")];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement.closest("tr"));
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
setInterval(() => { if (!document.hidden) { tellTimes(); tellState(); } }, 1000);
