// Vector stores, uploads, batches and embeddings, by OpenAI's client.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { toFile } from 'openai';
import { call, client, items, model } from './berth.mjs';

const file = (name, text) => toFile(Buffer.from(text), name);

test('a vector store: uploads, a batch, a search, file_search with a citation', async () => {
  const store = await client.vectorStores.create({ name: 'harbour' });
  const one = await client.vectorStores.files.uploadAndPoll(store.id, await file('tides.md', 'High water is at noon.'), { pollIntervalMs: 50 });
  assert.equal(one.status, 'completed');
  const batch = await client.vectorStores.fileBatches.uploadAndPoll(store.id, { files: [await file('ropes.md', 'Ropes and nets.'), await file('ships.md', 'Seven ships are due.')] }, { pollIntervalMs: 50 });
  assert.deepEqual([batch.status, batch.file_counts.completed], ['completed', 2]);
  const found = await client.vectorStores.search(store.id, { query: 'high water' });
  assert.deepEqual([found.data[0].file_id, found.data[0].content[0].text], [one.id, 'High water is at noon.']);
  const r = await client.responses.create({ model, input: call('file_search', { queries: ['ships due'] }), tools: [{ type: 'file_search', vector_store_ids: [store.id] }], include: ['file_search_call.results'] });
  const [search] = items(r, 'file_search_call');
  assert.deepEqual([search.queries, search.results[0].filename], [['ships due'], 'ships.md']);
  const { text, annotations } = r.output.at(-1).content[0];
  assert.match(text, /Seven ships are due\./);
  assert.deepEqual(annotations.map((a) => [a.type, a.file_id, a.filename]), [['file_citation', search.results[0].file_id, 'ships.md']]);
  await client.vectorStores.delete(store.id);
});

test('an upload in parts', async () => {
  const parts = ['calm ', 'sea'];
  const upload = await client.uploads.create({ bytes: 8, filename: 'n.txt', mime_type: 'text/plain', purpose: 'user_data' });
  const ids = [];
  for (const p of parts) ids.push((await client.uploads.parts.create(upload.id, { data: await file('part', p) })).id);
  const done = await client.uploads.complete(upload.id, { part_ids: ids });
  assert.equal(done.status, 'completed');
  assert.equal(await (await client.files.content(done.file.id)).text(), 'calm sea');
});

test('a batch of responses', async () => {
  const lines = [0, 1, 2].map((n) => JSON.stringify({ custom_id: `${n}`, method: 'POST', url: '/v1/responses', body: { model, input: `calm ${n}` } }));
  const input = await client.files.create({ file: await file('in.jsonl', lines.join('\n')), purpose: 'batch' });
  let batch = await client.batches.create({ input_file_id: input.id, endpoint: '/v1/responses', completion_window: '24h' });
  while (!['completed', 'failed', 'expired', 'cancelled'].includes(batch.status)) {
    await new Promise((done) => setTimeout(done, 50));
    batch = await client.batches.retrieve(batch.id);
  }
  assert.deepEqual([batch.status, batch.request_counts.completed], ['completed', 3]);
  const made = (await (await client.files.content(batch.output_file_id)).text()).trim().split('\n').map((l) => JSON.parse(l));
  assert.deepEqual(made.map((m) => [m.custom_id, m.response.body.output[0].content[0].text]).sort(), [['0', 'calm 0'], ['1', 'calm 1'], ['2', 'calm 2']]);
});

test('embeddings', async () => {
  const r = await client.embeddings.create({ model: 'embedder', input: ['calm sea', 'storm'] });
  assert.deepEqual(r.data.map((d) => Array.from(d.embedding)), [[8, 2], [5, 1]]);
});
