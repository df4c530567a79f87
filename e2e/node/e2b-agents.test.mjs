import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Manifest } from '@openai/agents/sandbox';
import { E2BSandboxClient } from '@openai/agents-extensions/sandbox/e2b';

test('a session of the Agents SDK', async () => {
  const client = new E2BSandboxClient({ timeout: 300, exposedPorts: [3000], env: { COLOUR: 'blue' } });
  const session = await client.create({ manifest: new Manifest({ root: '/home/user/workspace', entries: { 'a.txt': { type: 'file', content: 'from the manifest' } } }) });
  try {
    const output = await session.execCommand({ cmd: 'cat a.txt; echo " $COLOUR"' });
    assert.match(output, /from the manifest blue/);
    const { host } = await session.resolveExposedPort(3000);
    assert.match(host, /^3000-[0-9a-f]{48}\./);
    const state = await client.serializeSessionState(session.state);
    const again = await client.resume(await client.deserializeSessionState(state));
    assert.match(await again.execCommand({ cmd: 'cat a.txt' }), /from the manifest/);
  } finally {
    await session.close();
  }
});
