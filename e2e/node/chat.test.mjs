// Chat Completions with the official client: its plain calls, its streaming
// helper, its tool runner and its parser.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import OpenAI from 'openai';
import { client, model, sh } from './berth.mjs';

const chat = client.chat.completions;
const user = (content) => [{ role: 'user', content }];
const call = (name, body) => '```json ' + name + '\n' + JSON.stringify(body) + '\n```';

test('a plain completion', async () => {
  const c = await chat.create({ model, messages: [{ role: 'system', content: 'Be brief.' }, ...user('Hello, harbour.')] });
  assert.match(c.id, /^chatcmpl-/);
  assert.equal(c.object, 'chat.completion');
  assert.deepEqual(c.choices, [
    { index: 0, message: { role: 'assistant', content: 'Hello, harbour.', refusal: null, annotations: [] }, logprobs: null, finish_reason: 'stop' },
  ]);
  assert.equal(c.usage.total_tokens, c.usage.prompt_tokens + c.usage.completion_tokens);
  await assert.rejects(chat.retrieve(c.id), OpenAI.NotFoundError); // not stored unless asked for
});

test('several choices, and a stop', async () => {
  const c = await chat.create({ model, n: 3, stop: [' END'], messages: user('one two END three') });
  assert.deepEqual(c.choices.map((x) => [x.index, x.message.content]), [0, 1, 2].map((i) => [i, 'one two']));
});

test('chunks come in order and end with the usage', async () => {
  const chunks = [];
  const stream = await chat.create({ model, messages: user('Hello, harbour at night.'), stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) chunks.push(chunk);
  const [first, last, usage] = [chunks[0], chunks.at(-2), chunks.at(-1)];
  assert.deepEqual(first.choices[0].delta, { role: 'assistant', content: '', refusal: null });
  assert.deepEqual([last.choices[0].delta, last.choices[0].finish_reason], [{}, 'stop']);
  assert.deepEqual(usage.choices, []);
  assert.ok(usage.usage.total_tokens > 0);
  assert.equal(chunks.map((c) => c.choices[0]?.delta.content ?? '').join(''), 'Hello, harbour at night.');
  assert.deepEqual(new Set(chunks.map((c) => c.id)).size, 1);
  assert.ok(chunks.slice(0, -1).every((c) => c.usage === null && c.obfuscation));
});

test('the streaming helper gathers words and calls', async () => {
  const tools = [{ type: 'function', function: { name: 'add', parameters: { type: 'object' } } }];
  const stream = chat.stream({ model, messages: user(call('add', { a: 1, b: 2 })), tools });
  const seen = [];
  stream.on('tool_calls.function.arguments.done', (e) => seen.push([e.name, e.arguments]));
  const c = await stream.finalChatCompletion();
  assert.deepEqual(seen, [['add', '{"a":1,"b":2}']]);
  assert.equal(c.choices[0].finish_reason, 'tool_calls');
  assert.equal(c.choices[0].message.tool_calls[0].function.arguments, '{"a":1,"b":2}');
  assert.equal(await chat.stream({ model, messages: user('only words') }).finalContent(), 'only words');
});

test('the runner answers calls until there are none', async () => {
  for (const stream of [false, true]) {
    const runner = chat.runTools({
      model,
      stream,
      messages: user(call('add', { a: 1, b: 2 }) + '\n' + call('add', { a: 20, b: 21 })),
      tools: [{
        type: 'function',
        function: { name: 'add', parameters: { type: 'object' }, parse: JSON.parse, function: ({ a, b }) => String(a + b) },
      }],
    });
    assert.equal(await runner.finalContent(), '1. add: 3\n2. add: 41');
    assert.equal(runner.messages.length, 6);
  }
});

test('what has a schema is parsed', async () => {
  const response_format = { type: 'json_schema', json_schema: { name: 'n', strict: true, schema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'], additionalProperties: false } } };
  const c = await chat.parse({ model, messages: user('{"n":41}'), response_format });
  assert.deepEqual(c.choices[0].message.parsed, { n: 41 });
  const streamed = await chat.stream({ model, messages: user('{"n":42}'), response_format }).finalChatCompletion();
  assert.deepEqual(streamed.choices[0].message.parsed, { n: 42 });
});

test('a custom tool is called with text', async () => {
  const tools = [{ type: 'custom', custom: { name: 'poem' } }];
  const messages = user(call('poem', { input: 'a rose' }));
  const { message, finish_reason } = (await chat.create({ model, messages, tools })).choices[0];
  assert.equal(finish_reason, 'tool_calls');
  assert.deepEqual(message.tool_calls[0].custom, { name: 'poem', input: 'a rose' });
  messages.push(message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'fine' });
  assert.equal((await chat.create({ model, messages, tools })).choices[0].message.content, '1. poem: fine');
});

test('a hosted shell runs on the server, and its container is used again', async () => {
  const one = await chat.create({ model, messages: user(sh('echo 41 > n; echo kept')), tools: [{ type: 'shell' }] });
  const [choice] = one.choices;
  assert.deepEqual([choice.finish_reason, choice.message.tool_calls], ['stop', undefined]);
  assert.equal(choice.message.content, '1. exit 0: kept');
  const { container_id } = choice.berth;
  const tools = [{ type: 'shell', environment: { type: 'container_reference', container_id } }];
  const stream = chat.stream({ model, messages: [...user('before'), choice.message, ...user(sh('echo $(($(cat n) + 1))'))], tools });
  assert.equal(await stream.finalContent(), '1. exit 0: 42');
});

test('completions that are stored are listed, changed and deleted', async () => {
  const metadata = { test: randomUUID() };
  const made = [];
  for (const word of ['one', 'two', 'three']) made.push(await chat.create({ model, messages: user(word), store: true, metadata }));
  const listed = [];
  for await (const c of chat.list({ metadata, limit: 2 })) listed.push(c.id);
  assert.deepEqual(listed, made.map((c) => c.id));
  const [{ id }] = made;
  assert.equal((await chat.retrieve(id)).choices[0].message.content, 'one');
  assert.deepEqual((await chat.update(id, { metadata: { ...metadata, more: 'yes' } })).metadata, { ...metadata, more: 'yes' });
  const messages = [];
  for await (const m of chat.messages.list(id)) messages.push([m.role, m.content]);
  assert.deepEqual(messages, [['user', 'one']]);
  for (const c of made) assert.equal((await chat.delete(c.id)).deleted, true);
  await assert.rejects(chat.retrieve(id), OpenAI.NotFoundError);
});

test('errors are the client\'s own', async () => {
  await assert.rejects(chat.create({ model: 'none', messages: user('x') }), { name: 'Error', status: 404, code: 'model_not_found' });
  await assert.rejects(chat.create({ model, messages: user('x'), modalities: ['audio'] }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'modalities[0]');
  await assert.rejects(chat.create({ model, messages: [{ role: 'tool', tool_call_id: 'x', content: '' }] }), OpenAI.BadRequestError);
});
