// Shows terminals of a container with xterm.js. Each has a WebSocket, on which binary messages are
// input and output; see console/terminals.go.
import { Terminal } from "./vendor/xterm-6.0.0.mjs";
import { FitAddon } from "./vendor/xterm-fit-0.11.0.mjs";

// xterm.js writes style elements and style attributes, which the policy of pages forbids because
// text could bring them. Here they become style sheets and properties that only scripts can set.
const create = document.createElement;
document.createElement = function (name, options) {
  if (name !== "style") return create.call(this, name, options);
  const element = create.call(this, "template");
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  Object.defineProperty(element, "textContent", { set: (text) => sheet.replaceSync(text) });
  return element;
};
HTMLSpanElement.prototype.setAttribute = function (name, value) {
  if (name === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
};

const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => {
  const style = getComputedStyle(document.body);
  const [ground, text] = [style.backgroundColor, style.color];
  return { background: ground, foreground: text, cursor: text, cursorAccent: ground, selectionBackground: dark.matches ? "#3d5a73" : "#b5d5ee" };
};

// openLink opens a link that a program has written, if it leads to the web and the user agrees
// after seeing where it leads.
function openLink(event, address) {
  if (!URL.canParse(address)) return;
  const url = new URL(address);
  if (!["http:", "https:"].includes(url.protocol)) return;
  if (confirm(`A program in the container wrote this link. Open it?\n\n${url.href}`)) open(url.href, "_blank", "noopener,noreferrer");
}

const form = document.querySelector(".terminals").dataset.form;
for (const section of document.querySelectorAll(".pane")) show(section);
document.querySelector(".pane:last-of-type textarea")?.focus();

function show(section) {
  const status = section.querySelector("[role=status]");
  const terminal = new Terminal({
    theme: theme(), minimumContrastRatio: 4.5, fontFamily: "ui-monospace, monospace", fontSize: 14, lineHeight: 1.2, scrollback: 5000, screenReaderMode: true,
    allowProposedApi: false, linkHandler: { activate: openLink, allowNonHttpProtocols: false },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(section.querySelector(".screen"));
  section.terminal = terminal;
  dark.addEventListener("change", () => (terminal.options.theme = theme()));
  terminal.attachCustomKeyEventHandler((event) => {
    if (event.key !== "Escape" || !event.shiftKey) return true;
    if (event.type === "keydown") section.querySelector(".bar button").focus();
    return false;
  });
  fit.fit();

  let socket;
  let replaying = false; // answers of the terminal to what it showed before are not input
  const send = (message) => socket?.readyState === WebSocket.OPEN && socket.send(message);
  const encoder = new TextEncoder();
  terminal.onData((data) => {
    // A large paste is sent in parts, because a message has a limit.
    for (let rest = encoder.encode(data); !replaying && rest.length; rest = rest.subarray(65536)) send(rest.subarray(0, 65536));
  });
  terminal.onBinary((data) => !replaying && send(Uint8Array.from(data, (c) => c.charCodeAt(0))));
  terminal.onResize(({ cols, rows }) => send(JSON.stringify({ cols, rows })));
  new ResizeObserver(() => fit.fit()).observe(section.querySelector(".screen"));

  let wait = 500;
  function join() {
    let first = true;
    socket = new WebSocket(new URL(section.dataset.socket, location));
    socket.binaryType = "arraybuffer";
    socket.addEventListener("open", () => send(JSON.stringify({ form, cols: terminal.cols, rows: terminal.rows })));
    socket.addEventListener("message", (event) => {
      if (typeof event.data === "string") {
        status.textContent = `ended: ${JSON.parse(event.data).ended}`;
        return;
      }
      const data = new Uint8Array(event.data);
      if (first) {
        [first, replaying, wait] = [false, true, 500];
        status.textContent = "";
        terminal.reset();
      }
      terminal.write(data, () => {
        replaying = false;
        if (data.length) send(JSON.stringify({ read: data.length }));
      });
    });
    socket.addEventListener("close", (event) => {
      if (event.code === 1000) return; // the process has ended
      status.textContent = event.reason || "not connected";
      if (event.code === 1001 || event.code === 1008) return;
      setTimeout(join, wait);
      wait = Math.min(2 * wait, 10000);
    });
  }
  join();
}
