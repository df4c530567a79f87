// The search, buttons that copy code, the part of the page that is in view, and the choice of a version. Pages can be
// read without this script.
"use strict";

const root = document.body.dataset.root;

document.documentElement.classList.add("js");

// Copy buttons.
const pages = "M9 9h11v11H9zM5 15H4V4h11v1";
const tick = "m5 12 5 5L20 7";
for (const block of document.querySelectorAll(".code")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  const label = (text, icon) => {
    button.setAttribute("aria-label", text);
    button.title = text;
    button.innerHTML = '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="' + icon + '"/></svg>';
  };
  label("Copy", pages);
  button.addEventListener("click", async () => {
    await copy(block.querySelector("code").textContent);
    label("Copied", tick);
    button.classList.add("done");
    setTimeout(() => {
      label("Copy", pages);
      button.classList.remove("done");
    }, 1500);
  });
  block.append(button);
}

// copy also works on pages over plain HTTP, where browsers have no clipboard for scripts.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

// The navigation shows the current page.
const here = document.querySelector("#nav [aria-current]");
const side = document.getElementById("nav");
if (here && side.scrollHeight > side.clientHeight) {
  side.scrollTop = Math.max(0, here.offsetTop - side.clientHeight / 2);
}

// The table of contents marks the part in view.
const parts = new Map([...document.querySelectorAll(".contents a")].map((a) => [a.hash.slice(1), a]));
const headings = [...parts.keys()].map((id) => document.getElementById(decodeURIComponent(id))).filter(Boolean);
if (headings.length) {
  const mark = () => {
    const top = headings.findLast((h) => h.getBoundingClientRect().top < 140) ?? headings[0];
    for (const a of parts.values()) a.removeAttribute("aria-current");
    parts.get(encodeURIComponent(top.id))?.setAttribute("aria-current", "true");
    parts.get(top.id)?.setAttribute("aria-current", "true");
  };
  addEventListener("scroll", mark, { passive: true });
  mark();
}

// The search. Its index is a script that calls berthIndex, because pages that were opened as files can load no other data.
const dialog = document.getElementById("find");
const input = dialog.querySelector("input");
const list = document.getElementById("hits");
const status = dialog.querySelector("[role=status]");
let rows;
let loading;

function load() {
  loading ??= new Promise((done, fail) => {
    window.berthIndex = (index) => {
      rows = index.map(([address, page, title, text]) => ({ address, page, title, text, low: text.toLowerCase(),
        head: title.toLowerCase(), top: page.toLowerCase() }));
      done();
    };
    const script = document.createElement("script");
    script.src = root + "assets/index.js";
    script.onerror = () => fail(new Error("the index cannot be loaded"));
    document.head.append(script);
  });
  return loading;
}

// find returns the rows that have a word that begins with each of the terms, the best first.
function find(query) {
  const terms = query.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  if (!terms.length) return [];
  const found = terms.map((term) => ({ term, start: new RegExp("(?<![\\p{L}\\p{N}])" + term, "u"), whole: new RegExp("(?<![\\p{L}\\p{N}])" + term + "(?![\\p{L}\\p{N}])", "gu") }));
  const hits = [];
  for (const row of rows) {
    let score = 0;
    for (const { term, start, whole } of found) {
      let points = 0;
      if (start.test(row.head)) points += (row.head === term ? 40 : 16) + (row.head === row.top ? 12 : 0);
      if (row.top !== row.head && start.test(row.top)) points += 8;
      if (start.test(row.low)) points += 2 + Math.min(6, row.low.match(whole)?.length ?? 0) * 40 / (40 + row.low.length / 50);
      if (!points) {
        score = 0;
        break;
      }
      score += points;
    }
    if (score) hits.push({ row, score: score * (row.address.includes("decisions/") ? 0.6 : 1) });
  }
  return hits.sort((a, b) => b.score - a.score).slice(0, 20).map((hit) => ({ ...hit.row, terms: found }));
}

// snippet returns the words around the first term, with the terms marked.
function snippet(hit) {
  const at = Math.max(0, ...hit.terms.map((t) => hit.low.search(t.start)).filter((i) => i >= 0).slice(0, 1));
  const from = at < 60 ? 0 : hit.text.indexOf(" ", at - 50) + 1;
  const text = (from ? "… " : "") + hit.text.slice(from, from + 150) + (hit.text.length > from + 150 ? " …" : "");
  const line = document.createElement("span");
  const any = new RegExp("(?<![\\p{L}\\p{N}])(?:" + hit.terms.map((t) => t.term).join("|") + ")", "giu");
  let end = 0;
  for (const m of text.matchAll(any)) {
    const mark = document.createElement("mark");
    mark.textContent = m[0];
    line.append(text.slice(end, m.index), mark);
    end = m.index + m[0].length;
  }
  line.append(text.slice(end));
  return line;
}

async function show() {
  try {
    await load();
  } catch (error) {
    status.textContent = error.message;
    return;
  }
  const query = input.value.trim();
  const hits = find(query);
  list.replaceChildren(...hits.map((hit, i) => {
    const link = document.createElement("a");
    link.id = "hit" + i;
    link.setAttribute("role", "option");
    link.href = root + hit.address;
    link.tabIndex = -1;
    const title = document.createElement("b");
    title.textContent = hit.title === hit.page ? hit.page : hit.page + " › " + hit.title;
    link.append(title, snippet(hit));
    return link;
  }));
  status.textContent = !query ? "Words of a page, a setting, a route" : hits.length ? hits.length + (hits.length === 20 ? " best results" : hits.length === 1 ? " result" : " results") : "Nothing is found";
  input.setAttribute("aria-expanded", String(hits.length > 0));
  choose(0);
}

function choose(i) {
  const items = [...list.children];
  items.forEach((item, k) => item.setAttribute("aria-selected", String(k === i)));
  if (items[i]) {
    input.setAttribute("aria-activedescendant", items[i].id);
    items[i].scrollIntoView({ block: "nearest" });
  } else {
    input.removeAttribute("aria-activedescendant");
  }
}

function open() {
  if (dialog.open) return;
  dialog.showModal();
  input.select();
  show();
}

const button = document.querySelector("[data-find]");
button.hidden = false;
button.addEventListener("click", open);
input.addEventListener("input", show);
input.addEventListener("keydown", (event) => {
  const items = [...list.children];
  const i = items.findIndex((item) => item.getAttribute("aria-selected") === "true");
  if (event.key === "ArrowDown") choose(Math.min(i + 1, items.length - 1));
  else if (event.key === "ArrowUp") choose(Math.max(i - 1, 0));
  else if (event.key === "Enter" && items[i]) {
    dialog.close();
    items[i].click();
  } else if (event.key === "Escape") dialog.close(); // Chromium would only clear the field
  else return;
  event.preventDefault();
});
list.addEventListener("click", (event) => {
  if (event.target.closest("a")) dialog.close();
});
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if ((event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !typing && !event.ctrlKey)) {
    event.preventDefault();
    open();
  }
});

// A published site has other versions beside it.
const versions = document.body.dataset.versions;
if (versions && location.protocol.startsWith("http")) {
  fetch(versions).then((answer) => answer.json()).then((all) => {
    const label = document.querySelector(".version");
    if (all.length < 2) return;
    const choice = document.createElement("select");
    choice.className = "version";
    choice.setAttribute("aria-label", "Version");
    for (const { version, path } of all) {
      choice.add(new Option(version, root + "../" + path, false, version === label.dataset.version));
    }
    choice.addEventListener("change", async () => {
      const same = choice.value + document.body.dataset.path;
      const exists = await fetch(same, { method: "HEAD" }).then((answer) => answer.ok, () => false);
      location.assign(exists ? same : choice.value + "index.html");
    });
    label.replaceWith(choice);
  }).catch(() => {}); // without the list only this version is shown
}
