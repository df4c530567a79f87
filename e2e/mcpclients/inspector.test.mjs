// The command line of the MCP Inspector, as it comes.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';

const url = process.env.OPENAI_BASE_URL.replace(/\/v1$/, '/mcp');

const inspect = async (...args) => {
  const { stdout } = await promisify(execFile)('node_modules/.bin/mcp-inspector', ['--cli', url, '--transport', 'http', ...args]);
  return JSON.parse(stdout);
};

test('the tools are listed', async () => {
  const { tools } = await inspect('--method', 'tools/list');
  for (const name of ['run', 'code', 'read', 'write', 'edit', 'list', 'search', 'expose', 'containers', 'wait', 'stop']) {
    const tool = tools.find((t) => t.name === name);
    assert.ok(tool.description && tool.inputSchema && tool.outputSchema && tool.annotations, name);
  }
});

test('a command', async () => {
  const r = await inspect('--method', 'tools/call', '--tool-name', 'run', '--tool-arg', 'command=echo ahoy');
  assert.equal(r.structuredContent.stdout, 'ahoy\n');
});
