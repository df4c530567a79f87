// Makes what a program sees beside the language: tools, text and image. Everything is taken
// from the language before the program can change it.
((call, write) => {
  const { parse, stringify } = JSON;
  const makeError = Error, TypeError_ = TypeError;
  const encode = (value) => {
    const text = value === undefined ? "{}" : stringify(value);
    if (text === undefined) throw new TypeError_("The arguments of a tool must be an object.");
    return text;
  };
  globalThis.tools = new Proxy(Object.freeze(Object.create(null)), {
    // A promise that resolves to tools looks for "then".
    get: (_, name) => (typeof name !== "string" || name === "then" ? undefined : (args) => call(name, encode(args))),
    has: (_, name) => typeof name === "string",
    set: () => { throw new TypeError_("tools cannot be changed."); },
  });
  const print = (value) => {
    const written = typeof value === "string" ? value : stringify(value);
    write(written === undefined ? String(value) : written);
  };
  globalThis.text = print;
  globalThis.image = () => { throw new TypeError_("image() is not supported here: a program can write text only."); };
  return { text: print, parse: (text) => parse(text), failure: (message) => new makeError(message) };
})
