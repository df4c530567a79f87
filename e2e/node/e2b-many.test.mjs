import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Sandbox } from 'e2b';
import { client } from './berth.mjs';

const runs = Number(process.env.BERTH_E2B_RUNS ?? 10);

test('sandboxes one after another leave nothing', async () => {
  const metadata = { many: String(Math.random()) };
  for (let i = 0; i < runs; i++) {
    const sandbox = await Sandbox.create({ metadata, timeoutMs: 300_000 });
    assert.equal((await sandbox.commands.run(`echo ${i}`)).stdout, `${i}\n`);
    assert.equal(await sandbox.kill(), true);
    await assert.rejects(client.containers.retrieve('cntr_' + sandbox.sandboxId), { status: 404 });
  }
  assert.deepEqual(await Sandbox.list({ query: { metadata } }).nextItems(), []);
});
