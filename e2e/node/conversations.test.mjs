import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';
import { auto, client, containerOf, model, outputs, run, sh } from './berth.mjs';

const user = (content) => ({ type: 'message', role: 'user', content });

test('a conversation and its items, by every method', async () => {
  const conversation = await client.conversations.create({ metadata: { ship: 'Vasa' }, items: [user('Ahoy.')] });
  assert.match(conversation.id, /^conv_[0-9a-f]+$/);
  assert.deepEqual(await client.conversations.retrieve(conversation.id), conversation);
  const updated = await client.conversations.update(conversation.id, { metadata: { port: 'Kiel' } });
  assert.deepEqual(updated, { ...conversation, metadata: { port: 'Kiel' } });

  const added = await client.conversations.items.create(conversation.id, {
    items: [{ type: 'function_call', call_id: 'call_1', name: 'look', arguments: '{}' }, { type: 'function_call_output', call_id: 'call_1', output: 'fog' }],
    include: ['message.output_text.logprobs'],
  });
  assert.deepEqual(added.data.map((i) => i.type), ['function_call', 'function_call_output']);
  assert.equal(added.first_id, added.data[0].id);
  const item = await client.conversations.items.retrieve(added.first_id, { conversation_id: conversation.id });
  assert.deepEqual(item, added.data[0]);
  const all = [];
  for await (const i of client.conversations.items.list(conversation.id, { order: 'asc', limit: 1 })) all.push(i.type);
  assert.deepEqual(all, ['message', 'function_call', 'function_call_output']);
  const newest = await client.conversations.items.list(conversation.id);
  assert.equal(newest.data[0].id, added.last_id);

  assert.deepEqual(await client.conversations.items.delete(added.last_id, { conversation_id: conversation.id }), updated);
  await assert.rejects(client.conversations.items.retrieve(added.last_id, { conversation_id: conversation.id }), OpenAI.NotFoundError);
  const gone = await client.conversations.delete(conversation.id);
  assert.deepEqual(gone, { id: conversation.id, object: 'conversation.deleted', deleted: true });
  await assert.rejects(client.conversations.retrieve(conversation.id), OpenAI.NotFoundError);
  assert.equal((await client.conversations.create()).object, 'conversation');
});

test('responses in a conversation', async () => {
  const { id } = await client.conversations.create();
  const one = await run(sh('echo 41 > n'), { conversation: id });
  assert.deepEqual(one.conversation, { id });
  const stream = client.responses.stream({ model, input: sh('echo $(($(cat n) + 1))'), tools: auto, conversation: { id } });
  for await (const event of stream) if (event.response) assert.deepEqual(event.response.conversation, { id });
  const two = await stream.finalResponse();
  assert.equal(outputs(two)[0].stdout, '42\n');
  assert.equal(containerOf(two), containerOf(one));
  const items = [];
  for await (const i of client.conversations.items.list(id, { order: 'asc' })) items.push(i.type);
  const turn = ['message', 'shell_call', 'shell_call_output', 'message'];
  assert.deepEqual(items, [...turn, ...turn]);
  await assert.rejects(run('x', { conversation: id, previous_response_id: one.id }), (e) => e.status === 400 && e.code === 'mutually_exclusive_parameters');
});

test('two responses do not write one conversation', async () => {
  const { id } = await client.conversations.create();
  const one = await run(sh('until [ -e go ]; do sleep 0.05; done'), { conversation: id, background: true });
  await assert.rejects(run('x', { conversation: id }), (e) => e instanceof OpenAI.ConflictError && e.code === 'conversation_locked');
  await client.responses.cancel(one.id);
  const next = await run('free again', { conversation: id });
  assert.equal(next.status, 'completed');
  const items = await client.conversations.items.list(id, { order: 'asc' });
  assert.deepEqual(items.data.map((i) => i.content[0].text), ['free again', 'free again']);
});
