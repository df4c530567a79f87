// What the tests share. The client is the official one, unmodified: it reads
// OPENAI_BASE_URL and OPENAI_API_KEY itself.
import { File } from 'node:buffer';
import OpenAI from 'openai';

// Node 18, which Debian 12 has, lacks the global; the client then asks for this.
globalThis.File ??= File;

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
