// The Claude Agent SDK, as it comes, with the Claude Code that it brings.
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createSdkMcpServer, query, tool } from '@anthropic-ai/claude-agent-sdk';
import { z } from 'zod';
import { block, reciter, server } from './berth.mjs';

const home = await mkdtemp(join(tmpdir(), 'agent-sdk-'));
after(() => rm(home, { recursive: true, force: true }));

// ask runs an agent and returns its last message.
const ask = async (prompt, options = {}) => {
  let last;
  const env = {
    ...process.env, HOME: home, CLAUDE_CONFIG_DIR: home, TMPDIR: home, ANTHROPIC_BASE_URL: server, ANTHROPIC_AUTH_TOKEN: 'none',
    ANTHROPIC_SMALL_FAST_MODEL: reciter, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
  };
  for await (const message of query({ prompt, options: { model: reciter, cwd: home, env, ...options } })) last = message;
  assert.equal(last.subtype, 'success', JSON.stringify(last));
  return last;
};

// It defers the tools of MCP servers: the model finds them by its search before it can call them.
const found = (name) => block('ToolSearch', { query: `select:${name}` });

test('a file edited with its own tools', async () => {
  const log = join(home, 'log.md');
  await writeFile(log, 'calm\n');
  await ask(block('Read', { file_path: log }) + block('Edit', { file_path: log, old_string: 'calm', new_string: 'breeze' }),
    { permissionMode: 'acceptEdits' });
  assert.equal(await readFile(log, 'utf8'), 'breeze\n');
});

test('a tool of the program', async () => {
  const add = tool('add', 'Adds.', { a: z.number(), b: z.number() }, async ({ a, b }) => ({ content: [{ type: 'text', text: String(a + b) }] }));
  const r = await ask(found('mcp__sums__add') + block('mcp__sums__add', { a: 40, b: 2 }), {
    mcpServers: { sums: createSdkMcpServer({ name: 'sums', version: '1', tools: [add] }) }, allowedTools: ['mcp__sums__add'] });
  assert.match(r.result, /42/);
});

test("Berth's MCP server", async () => {
  const r = await ask(found('mcp__berth__run') + block('mcp__berth__run', { command: 'echo $((6 * 7))' }), {
    mcpServers: { berth: { type: 'http', url: server + '/mcp' } }, allowedTools: ['mcp__berth'] });
  assert.match(r.result, /42/);
});

test('a session resumed', async () => {
  const first = await ask('Say only this: aye');
  const second = await ask('Say only this: aye aye', { resume: first.session_id });
  assert.equal(second.result, 'aye aye');
  assert.equal(second.session_id, first.session_id);
});
