// OpenAI's client of the major version before the newest. Its helper for streams of
// responses does not know the events of the shell tool; the stream itself does.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI, { toFile } from 'openai-6';
import { zodResponseFormat, zodTextFormat } from 'openai-6/helpers/zod';
import { z } from 'zod';
import { auto, block, containerOf, model, outputs, reciter, sh } from '../node/berth.mjs';

const client = new OpenAI();
const run = (input, extra) => client.responses.create({ model, input, tools: auto, ...extra });
const Port = z.object({ port: z.string() });

test('several turns in one container', async () => {
  const one = await run(sh('echo 41 > n'));
  const two = await run(sh('echo $(($(cat n) + 1))'), { previous_response_id: one.id });
  assert.equal(outputs(two)[0].stdout, '42\n');
  assert.equal(containerOf(two), containerOf(one));
});

test('stream of a shell call, resumed', async () => {
  const whole = [];
  for await (const e of await run(sh('echo hi'), { stream: true })) whole.push(e);
  whole.forEach((e, i) => assert.equal(e.sequence_number, i));
  const rest = [];
  for await (const e of await client.responses.retrieve(whole[0].response.id, { stream: true, starting_after: 4 })) rest.push(e.type);
  assert.deepEqual(rest, whole.slice(5).map((e) => e.type));
});

test('stream helper', async () => {
  const stream = client.responses.stream({ model, input: 'calm sea' });
  let text = '';
  stream.on('response.output_text.delta', (e) => { text += e.delta; });
  assert.equal((await stream.finalResponse()).output_text, 'calm sea');
  assert.equal(text, 'calm sea');
});

test('structured output', async () => {
  const r = await client.responses.parse({ model: reciter, input: 'Say only this: {"port":"Oslo"}', text: { format: zodTextFormat(Port, 'port') } });
  assert.deepEqual(r.output_parsed, { port: 'Oslo' });
  const c = await client.chat.completions.parse({ model: reciter, messages: [{ role: 'user', content: 'Say only this: {"port":"Kiel"}' }], response_format: zodResponseFormat(Port, 'port') });
  assert.deepEqual(c.choices[0].message.parsed, { port: 'Kiel' });
});

test('functions run by the client over Chat Completions, streamed', async () => {
  const tide = { type: 'function', function: { name: 'tide', parse: JSON.parse, function: ({ port }) => `high at noon in ${port}`, parameters: { type: 'object', properties: { port: { type: 'string' } } } } };
  const runner = client.chat.completions.runTools({ model: reciter, stream: true, messages: [{ role: 'user', content: block('tide', { port: 'Brest' }) + block('tide', { port: 'Kiel' }) }], tools: [tide] });
  assert.equal(await runner.finalContent(), 'It came to this: high at noon in Kiel');
});

test('files in and out', async () => {
  const f = await client.files.create({ file: await toFile(Buffer.from('41'), 'n.txt'), purpose: 'user_data' });
  const r = await run(sh('echo $(($(cat n.txt) + 1)) > m.txt'), { tools: [{ type: 'shell', environment: { type: 'container_auto', file_ids: [f.id] } }] });
  const made = (await client.containers.files.list(containerOf(r))).data.find((x) => x.path === '/mnt/data/m.txt');
  assert.equal(await (await client.containers.files.content.retrieve(made.id, { container_id: containerOf(r) })).text(), '42\n');
  await client.containers.delete(containerOf(r));
  await client.files.delete(f.id);
});

test('assistant with a thread', async () => {
  const assistant = await client.beta.assistants.create({ model });
  const run = await client.beta.threads.createAndRunPoll({ assistant_id: assistant.id, thread: { messages: [{ role: 'user', content: 'calm sea' }] } }, { pollIntervalMs: 50 });
  assert.equal(run.status, 'completed');
  const [message] = (await client.beta.threads.messages.list(run.thread_id)).data;
  assert.equal(message.content[0].text.value, 'calm sea');
});

test('errors', async () => {
  await assert.rejects(client.responses.create({ model: 'none such', input: 'x' }), (e) => e instanceof OpenAI.NotFoundError && e.code === 'model_not_found' && e.requestID !== undefined);
  await assert.rejects(run('x', { tide: 'high' }), OpenAI.BadRequestError);
});
