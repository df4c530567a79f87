// Anthropic's own client, as it comes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod';
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod';
import { z } from 'zod';
import { call, mcpURL, model, reciter, search, server, sh, siteURL } from './berth.mjs';

const client = new Anthropic({ baseURL: server, apiKey: 'none', maxRetries: 0 });
const user = (content) => [{ role: 'user', content }];
const create = (content, extra = {}) => client.beta.messages.create({ model, max_tokens: 1000, messages: user(content), ...extra });
const ofType = (message, type) => message.content.filter((b) => b.type === type);
const code = [{ type: 'code_execution_20250825', name: 'code_execution' }];

test('text, whole and streamed', async () => {
  const message = await client.messages.create({ model, max_tokens: 100, messages: user('ahoy') });
  assert.match(message.content[0].text, /ahoy/);
  assert.ok(message.usage.input_tokens > 0);
  assert.match(message._request_id, /^req_/);
  const stream = client.messages.stream({ model, max_tokens: 100, system: 'Be brief.', messages: user('ahoy again') });
  const seen = [];
  stream.on('text', (text) => seen.push(text));
  assert.equal(await stream.finalText(), seen.join(''));
  assert.match(seen.join(''), /ahoy again/);
});

test('tools by the tool runner, whole and streamed', async () => {
  const add = betaZodTool({
    name: 'add', description: 'Adds numbers.', inputSchema: z.object({ a: z.number(), b: z.number() }),
    run: ({ a, b }) => String(a + b),
  });
  for (const stream of [false, true]) {
    const runner = client.beta.messages.toolRunner({
      model, max_tokens: 1000, tools: [add], stream, messages: user(call('add', { a: 40, b: 1 }) + call('add', { a: 41, b: 1 })),
    });
    assert.match((await runner.runUntilDone()).content.at(-1).text, /41[^]*42/);
  }
});

test('a tool result with an error', async () => {
  const tools = [{ name: 'add', description: 'Adds.', input_schema: { type: 'object', properties: { a: { type: 'number' } } } }];
  const first = await client.messages.create({
    model, max_tokens: 1000, tools, messages: user(call('add', { a: 1 })),
  });
  assert.equal(first.stop_reason, 'tool_use');
  const [use] = ofType(first, 'tool_use');
  const second = await client.messages.create({
    model, max_tokens: 1000, tools, messages: [...user(call('add', { a: 1 })), { role: 'assistant', content: first.content },
      ...user([{ type: 'tool_result', tool_use_id: use.id, is_error: true, content: 'the abacus is broken' }])],
  });
  assert.match(second.content[0].text, /abacus is broken/);
});

test('structured output', async () => {
  const answer = await client.messages.parse({
    model: reciter, max_tokens: 1000, messages: user('Say only this: {"name": "calm", "force": 0}'),
    output_config: { format: zodOutputFormat(z.object({ name: z.string(), force: z.number().int() })) },
  });
  assert.deepEqual(answer.parsed_output, { name: 'calm', force: 0 });
});

test('code execution in a container, used again', async () => {
  const first = await create(sh('echo 41 > n.txt', 'cat n.txt'), { tools: code });
  assert.deepEqual(ofType(first, 'bash_code_execution_tool_result').map((b) => b.content.stdout), ['', '41\n']);
  const stream = client.beta.messages.stream({
    model, max_tokens: 1000, container: first.container.id, tools: code, messages: user(sh('echo $(($(cat n.txt) + 1))')),
  });
  const second = await stream.finalMessage();
  assert.equal(second.container.id, first.container.id);
  assert.equal(ofType(second, 'bash_code_execution_tool_result')[0].content.stdout, '42\n');
});

test('web search with citations, and a page fetched', async () => {
  const found = await create(search, { tools: [{ type: 'web_search_20250305', name: 'web_search', max_uses: 3 }] });
  const [result] = ofType(found, 'web_search_tool_result');
  assert.equal(result.content[0].url, siteURL + '/tides');
  assert.equal(ofType(found, 'text').at(-1).citations[0].url, siteURL + '/tides');
  assert.equal(found.usage.server_tool_use.web_search_requests, 1);
  const again = await client.beta.messages.create({ model, max_tokens: 1000, tools: [{ type: 'web_search_20250305', name: 'web_search' }],
    messages: [...user(search), { role: 'assistant', content: found.content }, ...user('thanks')] });
  assert.match(ofType(again, 'text')[0].text, /thanks/);
  const fetched = await create(call('web_search', { type: 'open_page', url: siteURL + '/tides' }), { tools: [{ type: 'web_fetch_20250910', name: 'web_fetch' }] });
  assert.match(JSON.stringify(ofType(fetched, 'web_fetch_tool_result')[0].content), /High water is at noon/);
});

test('a server of the Model Context Protocol', async () => {
  const message = await create(call('tides__tide', { port: 'Brest' }), {
    mcp_servers: [{ type: 'url', name: 'tides', url: mcpURL }], tools: [{ type: 'mcp_toolset', mcp_server_name: 'tides' }],
  });
  assert.match(JSON.stringify(ofType(message, 'mcp_tool_result')), /high at noon in Brest/);
});

test('tokens counted, models listed, errors', async () => {
  assert.ok((await client.messages.countTokens({ model, messages: user('one two three') })).input_tokens >= 3);
  const models = [];
  for await (const m of client.models.list()) models.push(m.id);
  assert.ok(models.includes(model));
  assert.equal((await client.models.retrieve(model)).type, 'model');
  await assert.rejects(client.messages.create({ model, max_tokens: 0, messages: user('x') }),
    (e) => e instanceof Anthropic.BadRequestError && e.error.error.type === 'invalid_request_error' && /max_tokens/.test(e.message));
  await assert.rejects(create('x', { container: 'cntr_nothing', tools: code }), (e) => e instanceof Anthropic.APIError && /container/.test(e.message));
});
