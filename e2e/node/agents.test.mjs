// The Agents SDK as it comes, with agents on Berth.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import {
  Agent, BatchTraceProcessor, InputGuardrailTripwireTriggered, OpenAITracingExporter, OutputGuardrailTripwireTriggered,
  applyDiff, applyPatchTool, codeInterpreterTool, fileSearchTool, getGlobalTraceProvider, hostedMcpTool, run, setDefaultOpenAIClient, setTraceProcessors, shellTool, tool, webSearchTool, withTrace,
} from '@openai/agents';
import { toFile } from 'openai';
import { z } from 'zod';
import { block, call, cells, client, mcpURL, model as scripted, reciter as model, siteURL } from './berth.mjs';

setDefaultOpenAIClient(client);

// What is traced goes to Berth, which must take it.
const traced = [];
const exporter = new OpenAITracingExporter({ endpoint: `${client.baseURL}/traces/ingest`, apiKey: client.apiKey });
const send = globalThis.fetch;
globalThis.fetch = async (url, options) => {
  const response = await send(url, options);
  if (String(url).endsWith('/traces/ingest')) traced.push([response.status, JSON.parse(options.body).data.length]);
  return response;
};
setTraceProcessors([new BatchTraceProcessor(exporter)]);

const dir = await mkdtemp(path.join(tmpdir(), 'berth-agents-'));
after(() => rm(dir, { recursive: true }));

const tide = tool({
  name: 'tide', description: 'Tells when the tide is high.', parameters: z.object({ port: z.string() }),
  execute: async ({ port }) => `high at noon in ${port}`,
});

test('a function tool, streamed', async () => {
  const agent = new Agent({ name: 'Harbour', model, instructions: 'Recite.', tools: [tide] });
  const stream = await run(agent, block('tide', { port: 'Brest' }), { stream: true });
  const seen = [];
  let text = '';
  for await (const event of stream) {
    if (event.type === 'run_item_stream_event') seen.push(event.name);
    if (event.type === 'raw_model_stream_event' && event.data.type === 'output_text_delta') text += event.data.delta;
  }
  await stream.completed;
  assert.deepEqual(seen, ['tool_called', 'tool_output', 'message_output_created']);
  assert.equal(stream.finalOutput, 'It came to this: high at noon in Brest');
  assert.equal(text, stream.finalOutput);
});

test('a conversation goes on with previousResponseId', async () => {
  const agent = new Agent({ name: 'Harbour', model, instructions: 'Recite.', tools: [tide] });
  const first = await run(agent, block('tide', { port: 'Kiel' }));
  const second = await run(agent, 'And now?', { previousResponseId: first.lastResponseId });
  assert.equal(second.finalOutput, 'You said: And now?');
});

test('a handoff', async () => {
  const harbour = new Agent({ name: 'Harbour', model, instructions: 'You are the harbour.', tools: [tide] });
  const triage = new Agent({ name: 'Triage', model, instructions: 'Hand off.', handoffs: [harbour] });
  const result = await run(triage, block('transfer_to_Harbour', {}) + block('tide', { port: 'Oslo' }));
  assert.equal(result.lastAgent.name, 'Harbour');
  assert.equal(result.finalOutput, 'It came to this: high at noon in Oslo');
});

test('guardrails', async () => {
  const trip = { name: 'no storms', execute: async ({ input, agentOutput }) => ({ outputInfo: {}, tripwireTriggered: /storm/.test(JSON.stringify(agentOutput ?? input)) }) };
  const wary = new Agent({ name: 'Wary', model, inputGuardrails: [trip] });
  assert.equal((await run(wary, 'calm')).finalOutput, 'You said: calm');
  await assert.rejects(run(wary, 'a storm'), InputGuardrailTripwireTriggered);
  const discreet = new Agent({ name: 'Discreet', model, outputGuardrails: [trip] });
  await assert.rejects(run(discreet, 'a storm'), OutputGuardrailTripwireTriggered);
});

test('a shell on this machine', async () => {
  const shell = {
    run: async (action) => ({
      output: action.commands.map((c) => ({ stdout: execFileSync('sh', ['-c', c], { cwd: dir, encoding: 'utf8' }), stderr: '', outcome: { type: 'exit', exitCode: 0 } })),
    }),
  };
  const agent = new Agent({ name: 'Local', model, tools: [shellTool({ shell })] });
  const result = await run(agent, block('shell', { commands: ['pwd', 'echo ahoy'] }));
  assert.match(result.finalOutput, new RegExp(`${path.basename(dir)}.*ahoy`));
});

test('a shell in a container, and one more command in the same', async () => {
  const agent = new Agent({ name: 'Hosted', model, tools: [shellTool({ environment: { type: 'container_auto' } })] });
  const result = await run(agent, block('shell', { commands: ['echo 41 > n'] }) + block('shell', { commands: ['echo $(($(cat n) + 1))'] }));
  assert.match(result.finalOutput, /"stdout":"42\\n"/);
});

test('files are created, changed and deleted', async () => {
  const at = (p) => path.join(dir, p);
  const editor = {
    createFile: async (op) => { await writeFile(at(op.path), applyDiff('', op.diff, 'create')); return { status: 'completed' }; },
    updateFile: async (op) => { await writeFile(at(op.path), applyDiff(await readFile(at(op.path), 'utf8'), op.diff)); return { status: 'completed', output: 'changed' }; },
    deleteFile: async (op) => { await rm(at(op.path)); return { status: 'completed' }; },
  };
  const agent = new Agent({ name: 'Editor', model, tools: [applyPatchTool({ editor })] });
  const task = block('apply_patch', { type: 'create_file', path: 'log.md', diff: '+# Log\n+\n+calm' })
    + block('apply_patch', { type: 'update_file', path: 'log.md', diff: '@@\n # Log\n \n-calm\n+storm' });
  assert.equal((await run(agent, task)).finalOutput, 'It came to this: completed: changed');
  assert.equal((await readFile(at('log.md'), 'utf8')).trim(), '# Log\n\nstorm');
  const gone = await run(agent, block('apply_patch', { type: 'delete_file', path: 'log.md' }) + block('apply_patch', { type: 'delete_file', path: 'log.md' }));
  assert.match(gone.finalOutput, /^It came to this: failed: .*ENOENT/);
});

test('a model that calls a tool that does not exist gets another try', async () => {
  const agent = new Agent({ name: 'Harbour', model, tools: [tide] });
  const result = await run(agent, block('storm', {}) + block('tide', { port: 'Brest' }));
  assert.equal(result.finalOutput, 'It came to this: high at noon in Brest');
});

test('traces are taken', async () => {
  const workflow = `berth ${process.pid}`;
  let response;
  await withTrace(workflow, async () => { response = (await run(new Agent({ name: 'Traced', model }), 'calm')).lastResponseId; });
  await getGlobalTraceProvider().forceFlush();
  const list = await client.get('/traces?limit=100');
  const trace = list.data.find((t) => t.workflow_name === workflow);
  assert.ok(trace?.spans > 0, JSON.stringify(list));
  const spans = await client.get(`/traces/${trace.id}/spans`);
  const of = (type) => spans.data.filter((s) => s.span_data.type === type);
  assert.ok(of('agent').some((s) => s.span_data.name === 'Traced'), JSON.stringify(spans));
  assert.ok(of('response').some((s) => s.span_data.response_id === response), JSON.stringify(spans));
  assert.ok(traced.length > 0);
  for (const [status, items] of traced) assert.ok(status === 204 && items > 0, `${status} for ${items} items`);
});

test('codeInterpreterTool, several turns', async () => {
  const agent = new Agent({ name: 'Analyst', model: scripted, tools: [codeInterpreterTool({ container: { type: 'auto' } })] });
  const first = await run(agent, cells('x = 41'));
  const second = await run(agent, cells('x + 1'), { previousResponseId: first.lastResponseId });
  assert.equal(second.finalOutput, '1. code_interpreter: 42');
});

test('fileSearchTool with a citation', async () => {
  const store = await client.vectorStores.create({ name: 'agents' });
  await client.vectorStores.files.uploadAndPoll(store.id, await toFile(Buffer.from('High water is at noon.'), 'tides.md'), { pollIntervalMs: 50 });
  const agent = new Agent({ name: 'Librarian', model: scripted, tools: [fileSearchTool(store.id, { maxNumResults: 3, includeSearchResults: true })] });
  const result = await run(agent, call('file_search', { queries: ['high water'] }));
  assert.match(result.finalOutput, /^1\. file_search: High water is at noon\./);
  assert.match(JSON.stringify(result.rawResponses), /"file_citation"/);
  await client.vectorStores.delete(store.id);
});

test('webSearchTool with a citation', async () => {
  const agent = new Agent({ name: 'Reader', model: scripted, tools: [webSearchTool({ searchContextSize: 'low' })] });
  const result = await run(agent, call('web_search', { type: 'search', queries: ['tides'] }));
  assert.ok(result.finalOutput.includes(siteURL), result.finalOutput);
});

test('hostedMcpTool, with and without approval', async () => {
  const server = { serverLabel: 'tides', serverUrl: mcpURL };
  const free = await run(new Agent({ name: 'Harbour', model: scripted, tools: [hostedMcpTool(server)] }), call('tides__tide', { port: 'Brest' }));
  assert.equal(free.finalOutput, '1. tides__tide: high at noon in Brest');
  const asked = [];
  const onApproval = async (_, item) => {
    asked.push(item.rawItem.name);
    return { approve: true };
  };
  const wary = new Agent({ name: 'Harbour', model: scripted, tools: [hostedMcpTool({ ...server, requireApproval: 'always', onApproval })] });
  assert.equal((await run(wary, call('tides__tide', { port: 'Kiel' }))).finalOutput, '1. tides__tide: high at noon in Kiel');
  assert.deepEqual(asked, ['tide']);
});
