// The official TypeScript SDK, version 2, as it comes: with sessions, and in the version of the protocol without them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const url = process.env.OPENAI_BASE_URL.replace(/\/v1$/, '/mcp');

const use = async (mode, name) => {
  const client = new Client({ name: 'e2e', version: '1' }, { versionNegotiation: { mode } });
  await client.connect(new StreamableHTTPClientTransport(new URL(`${url}?container=v2-${name}`)));
  const { tools } = await client.listTools();
  assert.ok(tools.find((t) => t.name === 'read').annotations.readOnlyHint);
  const r = await client.callTool({ name: 'run', arguments: { command: 'echo ahoy | tee a.txt' } });
  assert.equal(r.structuredContent.stdout, 'ahoy\n');
  const { resources } = await client.listResources();
  assert.equal((await client.readResource({ uri: resources[0].uri })).contents[0].text, 'ahoy\n');
  const refused = await client.callTool({ name: 'read', arguments: { path: 'missing' } });
  assert.ok(refused.isError);
  await client.close();
};

test('tools, files and resources, with a session', () => use('legacy', 'legacy'));
test('the same in the version without sessions', async () => {
  await use({ pin: '2026-07-28' }, 'pinned');
  await use('auto', 'auto');
});
