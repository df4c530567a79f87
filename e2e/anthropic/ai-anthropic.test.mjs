// Vercel's AI SDK with its provider for Anthropic, as they come.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAnthropic } from '@ai-sdk/anthropic';
import { generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { call, model as name, search, server, sh, siteURL } from './berth.mjs';

const anthropic = createAnthropic({ baseURL: server + '/v1', apiKey: 'none' });
const model = anthropic(name);
const { tools: hosted } = anthropic;

test('text, whole and streamed', async () => {
  assert.match((await generateText({ model, prompt: 'ahoy' })).text, /ahoy/);
  const stream = streamText({ model, prompt: 'ahoy' });
  let text = '';
  for await (const piece of stream.textStream) text += piece;
  assert.match(text, /ahoy/);
  assert.ok((await stream.usage).inputTokens > 0);
});

test('a tool over several steps, streamed', async () => {
  const add = tool({ description: 'Adds.', inputSchema: z.object({ a: z.number(), b: z.number() }), execute: async ({ a, b }) => a + b });
  const stream = streamText({ model, tools: { add }, stopWhen: stepCountIs(5), prompt: call('add', { a: 40, b: 1 }) + call('add', { a: 41, b: 1 }) });
  assert.match(await stream.text, /41[^]*42/);
  assert.equal((await stream.steps).length, 3);
});

test('codeExecution in a container', async () => {
  const r = await generateText({ model, tools: { code_execution: hosted.codeExecution_20250825() }, prompt: sh('echo $((6 * 7))') });
  assert.match(JSON.stringify(r.toolResults), /42\\n/);
  assert.ok(r.providerMetadata.anthropic.container.id);
});

test('webSearch with sources, and webFetch', async () => {
  const r = await generateText({ model, tools: { web_search: hosted.webSearch_20250305({ maxUses: 3 }) }, prompt: search });
  assert.ok(r.sources.some((s) => s.url === siteURL + '/tides'), JSON.stringify(r.sources));
  const fetched = await generateText({
    model, tools: { web_fetch: hosted.webFetch_20250910() }, prompt: call('web_search', { type: 'open_page', url: siteURL + '/tides' }),
  });
  assert.match(JSON.stringify(fetched.toolResults), /High water is at noon/);
});

test('bash, textEditor and memory on this machine', async () => {
  const seen = [];
  const execute = async (input) => { seen.push(input); return 'done: ' + JSON.stringify(input); };
  const r = await generateText({
    model, stopWhen: stepCountIs(5),
    tools: { bash: hosted.bash_20250124({ execute }), str_replace_based_edit_tool: hosted.textEditor_20250728({ execute }), memory: hosted.memory_20250818({ execute }) },
    prompt: call('bash', { command: 'ls' }) + call('str_replace_based_edit_tool', { command: 'view', path: '/a' }) + call('memory', { command: 'view', path: '/memories' }),
  });
  assert.deepEqual(seen.map((i) => i.command), ['ls', 'view', 'view']);
  assert.match(r.text, /memories/);
});
