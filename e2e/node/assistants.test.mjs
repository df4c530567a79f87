import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';
import { client, model } from './berth.mjs';

const weather = {
  type: 'function',
  function: { name: 'weather', description: 'The weather in a city.', parameters: { type: 'object', properties: { city: { type: 'string' } } } },
};
const ask = (city) => '```json weather\n' + JSON.stringify({ city }) + '\n```';
const { assistants, threads } = client.beta;

const said = async (thread) =>
  (await threads.messages.list(thread, { order: 'asc' })).data.map((m) => [m.role, m.content[0].text.value]);

// answers are the outputs for what a run waits for.
const answers = (run) =>
  run.required_action.submit_tool_outputs.tool_calls.map((c) => ({ tool_call_id: c.id, output: `rain in ${JSON.parse(c.function.arguments).city}` }));

test('an assistant is made, changed, listed and deleted', async () => {
  const a = await assistants.create({ model, name: 'Pilot', tools: [weather], metadata: { ship: 'Vasa' } });
  assert.match(a.id, /^asst_/);
  assert.deepEqual(a.tools, [weather]);
  assert.equal((await assistants.update(a.id, { instructions: 'Steer.' })).instructions, 'Steer.');
  const ids = [];
  for await (const x of assistants.list({ limit: 1 })) ids.push(x.id);
  assert.ok(ids.includes(a.id));
  assert.deepEqual(await assistants.delete(a.id), { id: a.id, object: 'assistant.deleted', deleted: true });
  await assert.rejects(assistants.retrieve(a.id), OpenAI.NotFoundError);
});

test('createAndPoll, submitToolOutputsAndPoll', async () => {
  const a = await assistants.create({ model, tools: [weather] });
  const thread = await threads.create({ messages: [{ role: 'user', content: ask('Kiel') }] });
  let run = await threads.runs.createAndPoll(thread.id, { assistant_id: a.id }, { pollIntervalMs: 20 });
  assert.equal(run.status, 'requires_action');
  await assert.rejects(threads.messages.create(thread.id, { role: 'user', content: 'x' }), (e) => e.status === 400 && /while a run run_\w+ is active/.test(e.message));
  run = await threads.runs.submitToolOutputsAndPoll(run.id, { thread_id: thread.id, tool_outputs: answers(run) }, { pollIntervalMs: 20 });
  assert.equal(run.status, 'completed');
  assert.ok(run.usage.total_tokens > 0);
  assert.deepEqual(await said(thread.id), [['user', ask('Kiel')], ['assistant', '1. weather: rain in Kiel']]);
  const steps = (await threads.runs.steps.list(run.id, { thread_id: thread.id, order: 'asc' })).data;
  assert.deepEqual(steps.map((s) => [s.type, s.status]), [['tool_calls', 'completed'], ['message_creation', 'completed']]);
  assert.equal(steps[0].step_details.tool_calls[0].function.output, 'rain in Kiel');
  assert.deepEqual(await threads.runs.steps.retrieve(steps[0].id, { thread_id: thread.id, run_id: run.id }), steps[0]);
  assert.equal((await threads.runs.update(run.id, { thread_id: thread.id, metadata: { a: 'b' } })).metadata.a, 'b');

  await threads.messages.create(thread.id, { role: 'user', content: 'Thanks.' });
  run = await threads.runs.createAndPoll(thread.id, { assistant_id: a.id }, { pollIntervalMs: 20 });
  assert.deepEqual((await said(thread.id)).at(-1), ['assistant', 'Thanks.']);
  await threads.delete(thread.id);
  await assert.rejects(threads.retrieve(thread.id), OpenAI.NotFoundError);
});

test('the stream helpers put together what the server kept', async () => {
  const a = await assistants.create({ model, tools: [weather] });
  const first = threads.createAndRunStream({ assistant_id: a.id, thread: { messages: [{ role: 'user', content: ask('Kiel') + '\n' + ask('Oslo') }] } });
  const seen = [];
  first.on('event', (e) => seen.push(e.event)).on('toolCallDone', (c) => seen.push(c.function.arguments));
  let run = await first.finalRun();
  assert.equal(seen[0], 'thread.created');
  assert.equal(seen.at(-1), '{"city":"Kiel"}');
  for (const last of [false, true]) {
    assert.equal(run.status, 'requires_action');
    const text = [];
    const stream = threads.runs.submitToolOutputsStream(run.id, { thread_id: run.thread_id, tool_outputs: answers(run) });
    stream.on('textDelta', (d) => text.push(d.value));
    run = await stream.finalRun();
    assert.deepEqual(run, await threads.runs.retrieve(run.id, { thread_id: run.thread_id }));
    const kept = (await threads.runs.steps.list(run.id, { thread_id: run.thread_id })).data;
    const snapshots = await stream.finalRunSteps();
    for (const s of snapshots.filter((s) => s.status === 'completed')) assert.deepEqual(s, kept.find((k) => k.id === s.id));
    assert.equal(snapshots.length, 2);
    if (!last) continue;
    const [message] = await stream.finalMessages();
    assert.equal(text.join(''), message.content[0].text.value);
    assert.deepEqual(message, await threads.messages.retrieve(message.id, { thread_id: run.thread_id }));
  }
  assert.equal(run.status, 'completed');
});

test('runs.stream tells text piece by piece', async () => {
  const a = await assistants.create({ model });
  const thread = await threads.create();
  const stream = threads.runs.stream(thread.id, { assistant_id: a.id, additional_messages: [{ role: 'user', content: 'Ahoy there, you in the harbour.' }] });
  let text = '';
  for await (const e of stream) if (e.event === 'thread.message.delta') text += e.data.delta.content[0].text.value;
  assert.equal(text, 'Ahoy there, you in the harbour.');
  assert.equal((await stream.finalRun()).status, 'completed');
});

test('a run that waits is cancelled', async () => {
  const a = await assistants.create({ model, tools: [weather] });
  const run = await threads.createAndRunPoll({ assistant_id: a.id, thread: { messages: [{ role: 'user', content: ask('Kiel') }] } }, { pollIntervalMs: 20 });
  assert.equal((await threads.runs.cancel(run.id, { thread_id: run.thread_id })).status, 'cancelling');
  assert.equal((await threads.runs.poll(run.id, { thread_id: run.thread_id }, { pollIntervalMs: 20 })).status, 'cancelled');
  const runs = await threads.runs.list(run.thread_id);
  assert.deepEqual(runs.data.map((r) => r.status), ['cancelled']);
});

test('the code interpreter runs as a step', async () => {
  const a = await assistants.create({ model, tools: [{ type: 'code_interpreter' }] });
  const run = await threads.createAndRunPoll({ assistant_id: a.id, thread: { messages: [{ role: 'user', content: '```python\nprint(6 * 7)\n```' }] } }, { pollIntervalMs: 20 });
  assert.equal(run.status, 'completed');
  const steps = await threads.runs.steps.list(run.id, { thread_id: run.thread_id });
  const [call] = steps.data.flatMap((s) => s.step_details.tool_calls ?? []);
  assert.equal(call.code_interpreter.input.trim(), 'print(6 * 7)');
  assert.match(call.code_interpreter.outputs[0].logs, /^42\b/);
});

test('tools of other APIs are refused by name', async () => {
  await assert.rejects(assistants.create({ model, tools: [{ type: 'web_search' }] }), (e) => e.status === 400 && e.param === 'tools[0].type' && /web_search/.test(e.message));
});
