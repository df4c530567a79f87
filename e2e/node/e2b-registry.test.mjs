import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Sandbox, Template } from 'e2b';

const image = process.env.BERTH_E2B_IMAGE;
const credentials = { username: 'robot', password: 'secret-of-the-registry' };

test('an image of a private registry', async () => {
  const lines = [];
  await Template.build(Template().fromImage(image, credentials).runCmd('cat /etc/origin'), 'from-registry', { onBuildLogs: (entry) => lines.push(entry.message) });
  assert.ok(lines.includes('an image'), lines.join('\n'));
  const sandbox = await Sandbox.create('from-registry', { timeoutMs: 300_000 });
  assert.equal(await sandbox.files.read('/etc/origin'), 'an image');
  await sandbox.kill();
});

test('without credentials, or at an address of this machine, an image is not pulled', async () => {
  await assert.rejects(Template.build(Template().fromImage(image).runCmd('true'), 'no-credentials'), /could not be pulled/);
  await assert.rejects(Template.build(Template().fromImage('127.0.0.1:1/app', credentials).runCmd('true'), 'private'), /could not be pulled/);
});
