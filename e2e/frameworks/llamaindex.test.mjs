// LlamaIndex with its models of OpenAI's two APIs.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpenAI, OpenAIResponses } from '@llamaindex/openai';
import { agent, agentStreamEvent } from '@llamaindex/workflow';
import { tool } from 'llamaindex';
import { z } from 'zod';
import { auto, block, client, model as scripted, reciter, sh } from '../node/berth.mjs';

const options = { apiKey: client.apiKey, baseURL: client.baseURL };
const chat = (model = reciter, extra) => new OpenAI({ ...options, model, supportToolCall: true, ...extra });
const responses = (model = reciter, extra) => new OpenAIResponses({ ...options, model, supportToolCall: true, ...extra });
const tide = tool({ name: 'tide', description: 'Says when the tide is high.', parameters: z.object({ port: z.string() }), execute: ({ port }) => `high at noon in ${port}` });
const user = (content) => ({ messages: [{ role: 'user', content }] });

test('chat and stream', async () => {
  for (const [llm, isDelta] of [[chat(), () => true], [responses(), (raw) => raw.type === 'response.output_text.delta']]) {
    assert.equal((await llm.chat(user('calm'))).message.content, 'You said: calm');
    let text = '';
    for await (const { delta, raw } of await llm.chat({ ...user('light wind'), stream: true })) {
      if (isDelta(raw)) text += delta; // over Responses, events without text repeat the last
    }
    assert.equal(text, 'You said: light wind');
  }
});

test('agent with a tool over several turns, streamed', async () => {
  const events = agent({ llm: chat(), tools: [tide] }).runStream(block('tide', { port: 'Brest' }) + block('tide', { port: 'Kiel' }));
  let text = '';
  for await (const event of events) if (agentStreamEvent.include(event)) text += event.data.delta;
  assert.equal(text, 'It came to this: high at noon in Kiel');
});

test('function call over Responses', async () => {
  const { message } = await responses().chat({ ...user(block('tide', { port: 'Oslo' })), tools: [tide] });
  assert.deepEqual(message.options.toolCall.map((c) => [c.name, c.input]), [['tide', '{"port":"Oslo"}']]);
});

test('shell in a container as a built-in tool', async () => {
  const llm = responses(scripted, { builtInTools: auto });
  assert.equal((await llm.chat(user(sh('echo 41 > n; echo $(($(cat n) + 1))')))).message.content, '1. exit 0: 42');
});
