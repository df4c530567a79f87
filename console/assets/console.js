// Shows the elements that the server sends while a response runs: each replaces the one with
// its id, or is added at the end. Without this script a page shows the state when it was loaded.
"use strict";

const followed = document.querySelector("[data-events]");
if (followed) {
  const source = new EventSource(followed.dataset.events);
  source.addEventListener("show", (event) => show(followed, event.data));
  source.addEventListener("end", () => source.close());
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
    root.scrollTop = root.scrollHeight - below; // what was in view stays there
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
