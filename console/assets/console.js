// Shows the elements that the server sends while a run or a list changes: each replaces the one with
// its id, or is added at the end. Without this script a page shows the state when it was loaded.
"use strict";

document.documentElement.classList.add("js");

const sources = new WeakMap(); // of the elements that are followed
document.querySelectorAll("[data-events]").forEach((element) => stream(element));

function stream(element) {
  const source = new EventSource(element.dataset.events);
  sources.set(element, source);
  source.addEventListener("show", (event) => element.isConnected && show(element, event.data));
  source.addEventListener("end", () => { source.close(); showFilms(); });
}

// A list shows what is typed in its form. Each key withdraws the search before it, so that of several answers only that
// to the last one is shown, in whatever order they come.
for (const form of document.querySelectorAll("form[data-live]")) {
  let last, delay;
  form.addEventListener("input", () => {
    last?.abort();
    const own = (last = new AbortController());
    clearTimeout(delay);
    delay = setTimeout(async () => {
      const url = new URL(form.action);
      const open = new URLSearchParams(location.search).get("open");
      for (const [name, value] of [...new FormData(form), ["open", open]]) if (value) url.searchParams.set(name, value);
      const found = await pageOf(url, own.signal).catch(() => undefined);
      if (!found || own !== last) return;
      for (const part of document.querySelectorAll("[data-part]")) {
        const fresh = found.getElementById(part.id);
        if (!fresh) continue;
        if (part.role === "status") { // one that stays is read aloud
          part.textContent = fresh.textContent;
          continue;
        }
        sources.get(part)?.close();
        part.replaceWith(fresh);
        if (fresh.dataset.events) stream(fresh);
      }
      history.replaceState(null, "", url);
    }, 200);
  });
}

// pageOf returns a page of the console; undefined for one that leads elsewhere.
async function pageOf(url, signal) {
  const answer = await fetch(url, { signal });
  if (!answer.ok || answer.redirected) return;
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

function show(parent, html) {
  const root = document.documentElement;
  const atEnd = "tail" in parent.dataset && root.scrollHeight - root.scrollTop - root.clientHeight < 80;
  const template = document.createElement("template");
  template.innerHTML = html;
  for (const element of [...template.content.children]) {
    const old = document.getElementById(element.id);
    if (!old) {
      parent.append(element);
      continue;
    }
    const opened = [...old.querySelectorAll("details")].map((details) => details.open);
    element.querySelectorAll("details").forEach((details, i) => {
      details.open = opened[i] ?? details.open;
    });
    const focused = old.contains(document.activeElement) && document.activeElement;
    old.replaceWith(element);
    if (focused) {
      const same = [...element.querySelectorAll(focused.tagName)];
      (same.find((e) => e.href === focused.href) ?? same[0])?.focus();
    }
  }
  if (atEnd) root.scrollTop = root.scrollHeight;
}

// The screenshots of a response are also a film strip, each of which leads to its step.
showFilms();

function showFilms() {
  for (const turn of document.querySelectorAll(".turn:not(:has(.film))")) {
    const pictures = [...turn.querySelectorAll(".computer_call_output .picture")];
    if (pictures.length < 2) continue;
    const film = document.createElement("nav");
    film.className = "film";
    film.ariaLabel = "Screenshots";
    pictures.forEach((picture, i) => {
      const link = document.createElement("a");
      link.href = `#${picture.closest(".item").id}`;
      const small = new Image();
      small.src = picture.src;
      small.alt = `Screenshot ${i + 1} of ${pictures.length}`;
      link.append(small);
      film.append(link);
    });
    pictures[0].closest(".item").before(film);
  }
}

// An element that changes is read again from its page, until the page no longer marks it.
document.querySelectorAll("[data-refresh]").forEach((element) => refresh(element.id));

function refresh(id) {
  setTimeout(async () => {
    if (document.hidden) return refresh(id);
    const answer = await fetch(location.href).catch(() => undefined);
    if (!answer) return refresh(id); // the server restarts
    if (!answer.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById(id);
    if (!fresh) return;
    show(document.body, fresh.outerHTML);
    if ("refresh" in fresh.dataset) refresh(id);
  }, 2000);
}

// Earlier responses of a chain are put above the others when the link to them comes near the view.
watchEarlier();

function watchEarlier() {
  const link = document.querySelector("[data-earlier]");
  if (!link) return;
  const observer = new IntersectionObserver(async (changes) => {
    if (!changes.some((change) => change.isIntersecting)) return;
    observer.disconnect();
    const answer = await fetch(link.dataset.earlier);
    if (!answer.ok) return; // the link says why
    const template = document.createElement("template");
    template.innerHTML = await answer.text();
    const root = document.documentElement;
    const below = root.scrollHeight - root.scrollTop;
    link.parentElement.replaceWith(template.content);
    root.scrollTo({ top: root.scrollHeight - below, behavior: "instant" }); // what was in view stays there
    watchEarlier();
  }, { rootMargin: "100% 0px" });
  observer.observe(link);
}

// Files that are dropped on an element are chosen for an input. Unless the element has more to fill in, its
// form is sent.
for (const target of document.querySelectorAll("[data-drop]")) {
  const input = document.querySelector(target.dataset.drop);
  for (const name of ["dragenter", "dragover"]) {
    target.addEventListener(name, (event) => {
      event.preventDefault();
      target.classList.add("dropping");
    });
  }
  target.addEventListener("dragleave", (event) => {
    if (!target.contains(event.relatedTarget)) target.classList.remove("dropping");
  });
  target.addEventListener("drop", (event) => {
    event.preventDefault();
    target.classList.remove("dropping");
    if (!event.dataTransfer.files.length) return;
    input.files = event.dataTransfer.files;
    if (target !== input.form) input.form.requestSubmit();
  });
}

// The project's selector needs no button, and copy buttons copy.
document.addEventListener("change", (event) => {
  if (event.target.matches("select[data-submit]")) event.target.form.requestSubmit();
});
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (button) {
    const { copy, copyPath, copyText } = button.dataset;
    await copied(copy ?? (copyPath ? location.origin + copyPath : document.querySelector(copyText).textContent));
    button.classList.add("done");
    setTimeout(() => button.classList.remove("done"), 1500);
    return;
  }
  // On a wide window, a run of the list opens beside it.
  const link = event.target.closest("[data-open] .main a");
  if (link && innerWidth >= 1280 && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0) {
    event.preventDefault();
    openBeside(link);
  }
});

function openBeside(link) {
  const list = new URL(link.closest("[data-open]").dataset.open, location.href);
  list.searchParams.set("open", decodeURIComponent(link.pathname.split("/").at(-1)));
  location.assign(list);
}

// copied writes a text to the clipboard, also on pages without HTTPS, where browsers have no navigator.clipboard.
async function copied(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

// Times count while the page is open.
const units = [[86400, 172800, "days"], [3600, 3600, "h"], [60, 60, "min"], [1, 0, "s"]];
function span(seconds) {
  const [size, , name] = units.find(([, from]) => seconds >= from) ?? units[3];
  return `${Math.max(0, Math.floor(seconds / size))} ${name}`;
}
setInterval(() => {
  const now = Date.now() / 1000;
  for (const element of document.querySelectorAll("[data-since]")) {
    const seconds = Math.max(0, Math.floor(now - element.dataset.since));
    element.textContent = seconds < 3600 && seconds >= 60 ? `${Math.floor(seconds / 60)} min ${seconds % 60} s` : span(seconds);
  }
  for (const time of document.querySelectorAll("time[datetime]")) {
    if (!/ago$|^just now$/.test(time.textContent)) continue;
    const seconds = now - Date.parse(time.dateTime) / 1000;
    time.textContent = seconds < 10 ? "just now" : `${span(seconds)} ago`;
  }
}, 1000);

// The count of what waits, in the navigation and in the tab's title.
setInterval(async () => {
  if (document.hidden) return;
  const answer = await fetch("/console/waiting").catch(() => undefined);
  if (!answer?.ok || answer.redirected) return;
  const n = await answer.text();
  document.title = (n ? `(${n}) ` : "") + document.title.replace(/^\(\d+\) /, "");
  for (const count of document.querySelectorAll("[data-waiting]")) count.textContent = n;
}, 15_000);

// The keyboard.
const palette = document.getElementById("palette");
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && palette && !event.target.closest(".pane")) {
    event.preventDefault();
    palette.showModal();
    palette.querySelector("input").select();
    search();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog, .pane")) return;
  const rows = [...document.querySelectorAll("[data-rows] .main a")];
  const at = rows.indexOf(document.activeElement);
  const waiting = document.querySelector("[data-approval]");
  switch (event.key) {
    case "j": rows[Math.min(at + 1, rows.length - 1)]?.focus(); break;
    case "k": rows[Math.max(at - 1, 0)]?.focus(); break;
    case "a": waiting?.querySelector("button[value=approve]").focus(); break;
    case "d": {
      const details = waiting?.querySelector("details");
      if (!details) return;
      details.open = true;
      details.querySelector("input").focus();
      break;
    }
    case "?": document.getElementById("keys")?.showModal(); break;
    default: return;
  }
  event.preventDefault();
});

// searching is the search for what the field holds. Enter waits for it: it follows what was typed, not what was shown.
let searching;
async function find() {
  const input = palette.querySelector("input");
  const words = input.value;
  const answer = await fetch(`${input.dataset.palette}?q=${encodeURIComponent(words)}`);
  const found = answer.ok && !answer.redirected ? await answer.text() : "";
  if (input.value !== words) return;
  palette.querySelector("ul").innerHTML = found;
  palette.querySelector("li")?.classList.add("picked");
}
function search() {
  searching = find().catch(() => undefined);
}
async function follow() {
  for (let last; last !== searching; ) await (last = searching);
  palette.querySelector("li.picked a")?.click();
}
palette?.addEventListener("input", search);
palette?.addEventListener("keydown", (event) => {
  const rows = [...palette.querySelectorAll("li")];
  const at = rows.findIndex((row) => row.classList.contains("picked"));
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.key === "Enter") {
    event.preventDefault();
    follow();
  }
  if (!step || !rows.length) return;
  event.preventDefault();
  rows[at]?.classList.remove("picked");
  const next = rows[(at + step + rows.length) % rows.length];
  next.classList.add("picked");
  next.scrollIntoView({ block: "nearest" });
});
