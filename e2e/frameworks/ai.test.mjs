// The AI SDK with its OpenAI provider as they come.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createOpenAI } from '@ai-sdk/openai';
import { generateObject, generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { block, client, reciter } from '../node/berth.mjs';

const openai = createOpenAI({ baseURL: client.baseURL, apiKey: client.apiKey });
const model = openai(reciter);
const stopWhen = stepCountIs(5);

const tide = tool({
  description: 'Tells when the tide is high.', inputSchema: z.object({ port: z.string() }),
  execute: async ({ port }) => `high at noon in ${port}`,
});

test('text', async () => {
  const { text, usage, response } = await generateText({ model, prompt: 'calm' });
  assert.equal(text, 'You said: calm');
  assert.ok(usage.totalTokens > 0);
  assert.match(response.id, /^resp_/);
});

// referred counts what a request names by its id alone.
const referred = (request) => request.body.input.filter((item) => item.type === 'item_reference').length;

test('a tool, streamed, and the history of it in another request', async () => {
  const result = streamText({ model, tools: { tide }, stopWhen, prompt: block('tide', { port: 'Brest' }) + block('tide', { port: 'Kiel' }) });
  const kinds = new Set();
  let text = '';
  for await (const part of result.fullStream) {
    kinds.add(part.type);
    assert.notEqual(part.type, 'error', JSON.stringify(part.error));
    if (part.type === 'text-delta') text += part.text;
  }
  assert.equal(text, 'It came to this: high at noon in Kiel');
  for (const kind of ['tool-input-start', 'tool-input-delta', 'tool-call', 'tool-result', 'finish-step']) assert.ok(kinds.has(kind), kind);
  assert.equal((await result.steps).length, 3);
  const more = await generateText({ model, tools: { tide }, messages: [
    { role: 'user', content: 'first' }, ...(await result.response).messages, { role: 'user', content: 'so?' },
  ] });
  assert.equal(more.text, 'You said: so?');
  assert.equal(referred(more.request), 1);
});

test('the same without the server\'s memory', async () => {
  const { text } = await generateText({ model, tools: { tide }, stopWhen, prompt: block('tide', { port: 'Oslo' }), providerOptions: { openai: { store: false } } });
  assert.equal(text, 'It came to this: high at noon in Oslo');
});

test('a shell on this machine', async () => {
  const shell = openai.tools.shell({
    environment: { type: 'local' },
    execute: async ({ action }) => ({ output: action.commands.map((c) => ({ stdout: `did ${c}`, stderr: '', outcome: { type: 'exit', exitCode: 0 } })) }),
  });
  const { text } = await generateText({ model, tools: { shell }, stopWhen, prompt: block('shell', { commands: ['ls', 'pwd'] }) });
  assert.match(text, /did ls.*did pwd/);
});

test('a shell in a container', async () => {
  const shell = openai.tools.shell({ environment: { type: 'containerAuto' } });
  const prompt = block('shell', { commands: ['echo $((41 + 1))'] });
  const { text, toolResults, response } = await generateText({ model, tools: { shell }, stopWhen, prompt });
  assert.match(text, /"stdout":"42\\n"/);
  assert.equal(toolResults.length, 1);
  const more = await generateText({ model, tools: { shell }, messages: [{ role: 'user', content: prompt }, ...response.messages, { role: 'user', content: 'so?' }] });
  assert.equal(more.text, 'You said: so?');
  assert.ok(referred(more.request) >= 2);
});

test('the local shell', async () => {
  const local = openai.tools.localShell({ execute: async ({ action }) => ({ output: `did ${action.command.join(' ')}` }) });
  const { text } = await generateText({ model, tools: { local_shell: local }, stopWhen, prompt: block('local_shell', { command: ['ls', '-a'], working_directory: '/tmp' }) });
  assert.equal(text, 'It came to this: did ls -a');
});

test('a patch', async () => {
  const done = [];
  const patch = openai.tools.applyPatch({ execute: async ({ operation }) => { done.push(operation); return { status: 'completed', output: `${operation.type} done` }; } });
  const create = { type: 'create_file', path: 'a.md', diff: '+# A\n' };
  const result = streamText({ model, tools: { apply_patch: patch }, stopWhen, prompt: block('apply_patch', create) + block('apply_patch', { type: 'delete_file', path: 'a.md' }) });
  assert.equal(await result.text, 'It came to this: completed: delete_file done');
  assert.deepEqual(done, [create, { type: 'delete_file', path: 'a.md' }]);
  assert.equal(referred((await result.steps)[2].request), 2);
});

test('a custom tool with a grammar', async () => {
  const sql = openai.tools.customTool({ name: 'sql', description: 'Asks the database.', format: { type: 'grammar', syntax: 'regex', definition: 'SELECT (.|\n)+' } });
  const asked = [];
  sql.execute = async (input) => { asked.push(input); return 'one row'; };
  const { text } = await generateText({ model, tools: { sql }, stopWhen, toolChoice: 'auto', prompt: block('sql', { input: 'SELECT "a"\nFROM b' }) });
  assert.deepEqual(asked, ['SELECT "a"\nFROM b']);
  assert.equal(text, 'It came to this: one row');
});

test('an object', async () => {
  const { object } = await generateObject({ model, schema: z.object({ port: z.string() }), prompt: 'Say only this: {"port":"Brest"}' });
  assert.deepEqual(object, { port: 'Brest' });
});
