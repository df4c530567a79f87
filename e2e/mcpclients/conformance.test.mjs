// The protocol's own conformance suite: the scenarios that need no tools of a test server.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';

const url = process.env.OPENAI_BASE_URL.replace(/\/v1$/, '/mcp');

const check = async (scenario) => {
  // the suite needs Node.js 22
  const { stdout } = await promisify(execFile)('node_modules/.bin/node', ['node_modules/@modelcontextprotocol/conformance/dist/index.js', 'server', '--url', url, '--scenario', scenario]);
  assert.match(stdout, /Passed: (\d+)\/\1, 0 failed, 0 warnings/);
};

test('initialization, and an answer to pings', async () => {
  await check('server-initialize');
  await check('ping');
});
test('lists of tools and resources', async () => {
  await check('tools-list');
  await check('resources-list');
});
test('hosts and origins of other sites are refused', () => check('dns-rebinding-protection'));
test('several streams at a time', () => check('server-sse-multiple-streams'));
