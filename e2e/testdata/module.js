// Tells, in the page, what a page of a sandbox can do and what it cannot.
const told = {};
const attempt = async (name, f) => {
  try {
    told[name] = String(await f());
  } catch (e) {
    told[name] = "refused";
  }
};
await attempt("origin", () => self.origin);
await attempt("own file", async () => (await (await fetch("data.txt")).text()).trim());
await attempt("own post", async () => (await fetch("data.txt", { method: "POST", headers: { "X-App": "1" }, body: "x" })).status);
await attempt("the API", async () => (await fetch("/v1/models")).status);
await attempt("cookies", () => document.cookie);
await attempt("storage", () => localStorage.length);
await attempt("service worker", async () => typeof (await navigator.serviceWorker.register("module.js")));
document.getElementById("told").textContent = JSON.stringify(told);
