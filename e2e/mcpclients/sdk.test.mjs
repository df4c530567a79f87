// The official TypeScript SDK, version 1, as it comes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

const server = process.env.OPENAI_BASE_URL.replace(/\/v1$/, '');

const connect = async (query = '') => {
  const client = new Client({ name: 'e2e', version: '1' });
  const transport = new StreamableHTTPClientTransport(new URL(server + '/mcp' + query));
  await client.connect(transport);
  return { client, transport, call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options) };
};

test('a command, with its output while it runs', async () => {
  const { client, transport, call } = await connect();
  const seen = [];
  const r = await call('run', { command: 'echo ahoy; echo oops >&2; exit 3' }, { onprogress: (p) => seen.push(p.message) });
  assert.equal(r.isError ?? false, false);
  assert.deepEqual([r.structuredContent.stdout, r.structuredContent.stderr, r.structuredContent.exit_code], ['ahoy\n', 'oops\n', 3]);
  assert.match(seen.join(''), /ahoy/);
  await transport.terminateSession();
  await client.close();
});

test('a command is cancelled', async () => {
  const { client, call } = await connect('?container=ts-cancel');
  const abort = new AbortController();
  await assert.rejects(call('run', { command: 'echo started; sleep 1000' }, { signal: abort.signal, onprogress: () => abort.abort() }));
  const r = await call('run', { command: 'pgrep -f "sleep [1]000" || echo none' });
  assert.match(r.structuredContent.stdout, /none/);
  await client.close();
});

test('files, and a subscription to one', async () => {
  const { client, call } = await connect('?container=ts-files');
  await call('write', { path: 'notes/a.txt', content: 'one\n' });
  await call('edit', { path: 'notes/a.txt', old_text: 'one', new_text: 'two' });
  assert.equal((await call('read', { path: 'notes/a.txt' })).content[0].text, 'two\n');
  const { resources } = await client.listResources();
  const [{ uri }] = resources.filter((r) => r.name === 'a.txt');
  assert.equal((await client.readResource({ uri })).contents[0].text, 'two\n');
  const changed = new Promise((resolve) => client.setNotificationHandler(ResourceUpdatedNotificationSchema, (n) => resolve(n.params.uri)));
  await client.subscribeResource({ uri });
  await call('write', { path: 'notes/a.txt', content: 'three\n' });
  assert.equal(await changed, uri);
  await client.close();
});

test('a chart of Python is an image', async () => {
  const { client, call } = await connect();
  const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
  const r = await call('code', { code: `from IPython.display import Image\nimport base64\nImage(base64.b64decode('${png}'))` });
  const [image] = r.content.filter((c) => c.type === 'image');
  assert.deepEqual([image.mimeType, image.data], ['image/png', png]);
  await client.close();
});

test('the program berth mcp', async () => {
  const client = new Client({ name: 'e2e', version: '1' });
  await client.connect(new StdioClientTransport({ command: process.env.BERTH_BIN, args: ['mcp'], env: { ...process.env, BERTH_URL: server } }));
  const r = await client.callTool({ name: 'run', arguments: { command: 'echo ahoy' } });
  assert.equal(r.structuredContent.stdout, 'ahoy\n');
  await client.close();
});
