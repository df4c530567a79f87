// Mastra's agents, with a model on Berth behind Mastra's own router of models, which
// speaks Chat Completions.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { createStep, createWorkflow } from '@mastra/core/workflows';
import { toFile } from 'openai-6';
import { z } from 'zod';
import { block, client, reciter, run, sh } from '../node/berth.mjs';


const chat = { id: `berth/${reciter}`, url: client.baseURL, apiKey: client.apiKey };

const tide = createTool({
  id: 'tide', description: 'Says when the tide is high.', inputSchema: z.object({ port: z.string() }), outputSchema: z.object({ at: z.string() }),
  execute: async ({ context, port }) => ({ at: `noon in ${context?.port ?? port}` }),
});

const agent = (extra) => new Agent({ name: 'Harbour', instructions: 'Recite.', model: chat, ...extra });

test('tool over several turns', async () => {
  const { text } = await agent({ tools: { tide } }).generate(block('tide', { port: 'Brest' }) + block('tide', { port: 'Kiel' }));
  assert.match(text, /^It came to this: .*noon in Kiel/);
});

test('stream', async () => {
  const stream = await agent({ tools: { tide } }).stream(block('tide', { port: 'Oslo' }));
  let text = '';
  for await (const part of stream.textStream) text += part;
  assert.match(text, /^It came to this: .*noon in Oslo/);
  assert.equal(await stream.finishReason, 'stop');
});

test('structured output', async () => {
  const { object } = await agent().generate('Say only this: {"port":"Brest"}', { structuredOutput: { schema: z.object({ port: z.string() }) } });
  assert.deepEqual(object, { port: 'Brest' });
});

// A tool of Mastra's that runs commands in a container of Berth's.
test('tool that runs commands in a container, files in and out', async () => {
  const container = await client.containers.create({ name: 'mastra' });
  await client.containers.files.create(container.id, { file: await toFile(Buffer.from('41'), 'n.txt') });
  const environment = { type: 'container_reference', container_id: container.id };
  const shell = createTool({
    id: 'run', description: 'Runs a command.', inputSchema: z.object({ command: z.string() }),
    execute: async ({ context, command }) => ({ said: (await run(sh(context?.command ?? command), { tools: [{ type: 'shell', environment }] })).output_text }),
  });
  const { text } = await agent({ tools: { run: shell } }).generate(block('run', { command: 'echo $(($(cat n.txt) + 1)) > m.txt' }) + block('run', { command: 'cat m.txt' }));
  assert.match(text, /exit 0: 42/);
  const made = (await client.containers.files.list(container.id)).data.find((f) => f.path === '/mnt/data/m.txt');
  assert.equal(await (await client.containers.files.content.retrieve(made.id, { container_id: container.id })).text(), '42\n');
  await client.containers.delete(container.id);
});

test('workflow with an agent as a step', async () => {
  const step = createStep({
    id: 'ask', inputSchema: z.object({ port: z.string() }), outputSchema: z.object({ text: z.string() }),
    execute: async ({ inputData }) => ({ text: (await agent({ tools: { tide } }).generate(block('tide', inputData))).text }),
  });
  const workflow = createWorkflow({ id: 'tides', inputSchema: step.inputSchema, outputSchema: step.outputSchema }).then(step).commit();
  const result = await (await workflow.createRunAsync()).start({ inputData: { port: 'Brest' } });
  assert.equal(result.status, 'success');
  assert.match(result.result.text, /noon in Brest/);
});
