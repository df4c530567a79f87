import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';
import { client, model } from './berth.mjs';

test('input tokens are counted before they are spent', async () => {
  const body = { model, input: 'one two three', instructions: 'Be brief.' };
  const counted = await client.responses.inputTokens.count(body);
  assert.equal(counted.object, 'response.input_tokens');
  const spent = await client.responses.create(body);
  assert.equal(counted.input_tokens, spent.usage.input_tokens);
  const estimated = await client.responses.inputTokens.count({ input: 'hello world', truncation: 'auto' });
  assert.ok(estimated.input_tokens >= 2 && estimated.input_tokens < 20);
});

test('a compacted window is gone on from', async () => {
  const first = await client.responses.create({ model, input: 'a task' });
  const compacted = await client.responses.compact({ model, previous_response_id: first.id, input: 'and more' });
  assert.equal(compacted.object, 'response.compaction');
  assert.deepEqual(compacted.output.map((i) => i.type), ['message', 'message', 'compaction']);
  assert.deepEqual(compacted.output.slice(0, 2).map((i) => i.content[0].text), ['a task', 'and more']);
  assert.ok(compacted.usage.total_tokens > 0);
  const next = await client.responses.create({ model, store: false, input: [...compacted.output, { role: 'user', content: 'go on' }] });
  assert.equal(next.output_text, 'go on');
  const altered = { ...compacted.output[2], encrypted_content: compacted.output[2].encrypted_content.slice(0, -3) + 'xyz' };
  await assert.rejects(
    client.responses.create({ model, input: [altered] }),
    (e) => e instanceof OpenAI.BadRequestError && e.code === 'invalid_encrypted_content',
  );
});

test('a stream shows the compaction after the answer', async () => {
  const stream = client.responses.stream({
    model,
    input: 'word '.repeat(1200),
    context_management: [{ type: 'compaction', compact_threshold: 1000 }],
  });
  const items = [];
  for await (const e of stream) if (e.type === 'response.output_item.done') items.push(e.item.type);
  assert.deepEqual(items, ['message', 'compaction']);
  const final = await stream.finalResponse();
  const next = await client.responses.create({ model, previous_response_id: final.id, input: 'go on' });
  assert.equal(next.output_text, 'go on');
  assert.ok(next.usage.input_tokens < 1200, `${next.usage.input_tokens} tokens`);
});
