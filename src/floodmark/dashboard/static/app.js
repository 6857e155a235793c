// The script of the dashboard: it keeps pages live, times current and forms on the page. Pages also work without it.
"use strict";

const root = document.body.dataset.root;
const oldest = 2000;            // A page older than this says so, in milliseconds.
const shortestRefresh = 1000;   // The shortest time between two refreshes.
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

/* ---- Live regions ------------------------------------------------------------------------------------------ */

let feed = null, heardAt = 0, refreshedAt = 0, timer = null, isRefreshing = false, isStale = false;

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
  for (const kind of kinds.split(" ")) feed.addEventListener(kind, () => { heard(); refresh(); });
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
    const answer = await fetch(location.href, { headers: { "X-Floodmark-Live": "1", "X-Floodmark-Have": versionsHere() }, cache: "no-store" });
    if (answer.redirected) { location.reload(); return; }
    if (answer.ok) swapRegions(await answer.text());
  } catch (error) {
    tellState(); // The connection is lost; the feed connects again and then refreshes.
  } finally {
    isRefreshing = false;
    if (isStale) refresh();
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

// A part of a form that depends on what was typed: the server renders it.
let previewTimer = null;
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-preview]");
  if (!form) return;
  clearTimeout(previewTimer);
  previewTimer = setTimeout(async () => {
    const body = new URLSearchParams(new FormData(form));
    const answer = await fetch(form.dataset.preview, { method: "POST", body, headers: { "X-Floodmark-Live": "1" } });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const target = document.getElementById("preview"), next = fresh.getElementById("preview");
    if (target && next) target.replaceWith(document.importNode(next, true));
  }, 350);
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

// Charts and maps change with time alone, so a page is also asked for again when nothing happens.
const idleRefresh = 15000;
setInterval(() => { if (feed && !document.hidden && Date.now() - refreshedAt > idleRefresh) refresh(); }, 5000);

/* ---- Start ----------------------------------------------------------------------------------------------------- */

document.addEventListener("visibilitychange", () => {
  if (document.hidden) hangUp();
  else { listen(); refresh(); }
});

readClock(document.body);
if (rememberZone()) refresh();
tellTimes();
countChosen();
listen();
setInterval(() => { if (!document.hidden) { tellTimes(); tellState(); } }, 1000);
