import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import OpenAI, { toFile } from 'openai';
import { client, containerOf, model, outputs, run, sh } from './berth.mjs';

const csv = 'port,ships\nBrest,3\nKiel,5\nOslo,7\n';

test('a file is uploaded, read and deleted', async () => {
  const f = await client.files.create({ file: await toFile(Buffer.from(csv), 'ports.csv'), purpose: 'user_data' });
  assert.deepEqual([f.object, f.filename, f.bytes, f.purpose, f.status], ['file', 'ports.csv', csv.length, 'user_data', 'processed']);
  assert.equal(await (await client.files.content(f.id)).text(), csv);
  const ids = [];
  for await (const x of client.files.list()) ids.push(x.id);
  assert.ok(ids.includes(f.id));
  assert.deepEqual(await client.files.delete(f.id), { id: f.id, object: 'file', deleted: true });
  await assert.rejects(client.files.content(f.id), OpenAI.NotFoundError);
});

test('a task in five steps over a CSV file', async () => {
  const f = await client.files.create({ file: await toFile(Buffer.from(csv), 'ports.csv'), purpose: 'user_data' });
  const tools = [{ type: 'shell', environment: { type: 'container_auto', file_ids: [f.id], memory_limit: '1g' } }];
  const steps = [
    'head -1 ports.csv',
    'export TOTAL=$(tail -n +2 ports.csv | cut -d, -f2 | paste -sd+ | bc 2>/dev/null || awk -F, \'NR>1{s+=$2}END{print s}\' ports.csv); echo $TOTAL',
    'python3 -c "import pandas as pd; print(pd.read_csv(\'ports.csv\').ships.max())"',
    'python3 -c "import os; open(\'out.txt\',\'w\').write(os.environ[\'TOTAL\'])"',
    'cat out.txt; rm ports.csv; ls',
  ];
  const r = await client.responses.create({ model, tools, input: sh(...steps) });
  assert.deepEqual(outputs(r).map((o) => o.stdout), ['port,ships\n', '15\n', '7\n', '', '15out.txt\n']);
  const made = (await client.containers.files.list(containerOf(r))).data.filter((x) => x.source === 'assistant');
  assert.deepEqual(made.map((x) => [x.path, x.bytes]), [['/mnt/data/out.txt', 2]]);
  const content = await client.containers.files.content.retrieve(made[0].id, { container_id: containerOf(r) });
  assert.equal(await content.text(), '15');
});

test('a container is made by hand, filled and referred to', async () => {
  const c = await client.containers.create({ name: 'berth 7', expires_after: { anchor: 'last_active_at', minutes: 5 }, memory_limit: '1g' });
  assert.match(c.id, /^cntr_/);
  assert.deepEqual([c.object, c.name, c.status, c.memory_limit, c.expires_after.minutes], ['container', 'berth 7', 'running', '1g', 5]);
  const up = await client.containers.files.create(c.id, { file: await toFile(Buffer.from('ahoy'), 'hail.txt') });
  assert.deepEqual([up.object, up.path, up.bytes, up.source], ['container.file', '/mnt/data/hail.txt', 4, 'user']);
  const r = await run(sh('cat hail.txt'), { tools: [{ type: 'shell', environment: { type: 'container_reference', container_id: c.id } }] });
  assert.equal(outputs(r)[0].stdout, 'ahoy');
  assert.equal((await client.containers.files.retrieve(up.id, { container_id: c.id })).bytes, 4);
  await client.containers.files.delete(up.id, { container_id: c.id });
  await assert.rejects(client.containers.files.retrieve(up.id, { container_id: c.id }), OpenAI.NotFoundError);
  const ids = [];
  for await (const x of client.containers.list()) ids.push(x.id);
  assert.ok(ids.includes(c.id));
  await client.containers.delete(c.id);
  await assert.rejects(client.containers.retrieve(c.id), OpenAI.NotFoundError);
  await assert.rejects(run(sh('true'), { tools: [{ type: 'shell', environment: { type: 'container_reference', container_id: c.id } }] }), OpenAI.APIError);
});

test('names that lead elsewhere are refused', async () => {
  const c = await client.containers.create({ name: 'walls' });
  for (const name of ['../escape', '/etc/passwd', 'a/../../b', '..', 'nul\0byte']) {
    const form = new FormData();
    form.append('file', new Blob(['x']), name);
    await assert.rejects(client.post(`/containers/${c.id}/files`, { body: form }), (e) => e.status === 400, JSON.stringify(name));
  }
  await client.containers.delete(c.id);
});

test('100 MB go in and out unharmed', async () => {
  const block = createHash('sha512').update('berth').digest();
  const big = Buffer.alloc(100 << 20, block);
  const digest = createHash('sha256').update(big).digest('hex');
  const f = await client.files.create({ file: await toFile(big, 'big.bin'), purpose: 'user_data' });
  assert.equal(f.bytes, big.length);
  const r = await run(sh('sha256sum big.bin | cut -c1-64; cp big.bin back.bin'), { tools: [{ type: 'shell', environment: { type: 'container_auto', file_ids: [f.id] } }] });
  assert.equal(outputs(r)[0].stdout, digest + '\n', outputs(r)[0].stderr);
  const back = (await client.containers.files.list(containerOf(r))).data.find((x) => x.path === '/mnt/data/back.bin');
  const body = await client.containers.files.content.retrieve(back.id, { container_id: containerOf(r) });
  const hash = createHash('sha256');
  for await (const chunk of body.body) hash.update(chunk);
  assert.equal(hash.digest('hex'), digest);
  await client.containers.delete(containerOf(r));
  await client.files.delete(f.id);
});
