// What the tests share. The client is the official one, unmodified: it reads
// OPENAI_BASE_URL and OPENAI_API_KEY itself.
import { File } from 'node:buffer';
import { webcrypto } from 'node:crypto';
import OpenAI from 'openai';

// Node 18, which Debian 12 has, lacks these globals; clients then ask for them.
globalThis.File ??= File;
globalThis.crypto ??= webcrypto;

export const client = new OpenAI();

// Model is the scripted provider, a recital: it runs the fenced blocks of the
// last user message and then quotes what came of them.
export const model = 'scripted';

export const auto = [{ type: 'shell', environment: { type: 'container_auto' } }];

export const sh = (...commands) => commands.map((c) => '```sh\n' + c + '\n```').join('\n');

// run asks for commands, one turn each, and returns the response.
export const run = (input, extra = {}) =>
  client.responses.create({ model, input, tools: auto, ...extra });

// outputs are the outputs of a response's shell calls, in order.
export const outputs = (response) =>
  response.output.filter((i) => i.type === 'shell_call_output').flatMap((i) => i.output);

export const containerOf = (response) => response.tools[0].environment.container_id;

// A model behind Berth, which speaks Chat Completions and recites as well: each
// block of the last user message is a call of a function.
export const reciter = 'reciter';

export const block = (name, args) => '```' + name + '\n' + JSON.stringify(args) + '\n```\n';

// cells has the scripted model run Python, one call each.
export const cells = (...code) => code.map((c) => '```python\n' + c + '\n```').join('\n');

// call has it call a function.
export const call = (name, args) => '```json ' + name + '\n' + JSON.stringify(args) + '\n```\n';

// drawer is a model whose upstream has tools of its own: images and a computer. It calls its
// tool once after each message of the user.
export const drawer = 'gpt-5.4';

// items are the items of a response that have a type.
export const items = (response, type) => response.output.filter((i) => i.type === type);

// What the server may reach: an MCP server with the tool "tide", and a site that its search
// service finds.
export const { BERTH_TEST_MCP: mcpURL, BERTH_TEST_SITE: siteURL } = process.env;
