// LangChain's OpenAI client as it comes, on the Responses API.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';
import { block, client, reciter } from '../node/berth.mjs';

const make = (extra) => new ChatOpenAI({ model: reciter, useResponsesApi: true, apiKey: client.apiKey, configuration: { baseURL: client.baseURL }, ...extra });

const tide = tool(async ({ port }) => `high at noon in ${port}`, { name: 'tide', description: 'Tells when the tide is high.', schema: z.object({ port: z.string() }) });

test('text', async () => {
  const answer = await make().invoke('calm');
  assert.equal(answer.text, 'You said: calm');
  assert.match(answer.response_metadata.id, /^resp_/);
  assert.ok(answer.usage_metadata.total_tokens > 0);
});

for (const zdrEnabled of [false, true]) {
  test('a tool and its answer' + (zdrEnabled ? ', nothing stored' : ''), async () => {
    const llm = make({ zdrEnabled }).bindTools([tide]);
    const messages = [new HumanMessage(block('tide', { port: 'Brest' }))];
    const asked = await llm.invoke(messages);
    assert.equal(asked.tool_calls[0].name, 'tide');
    messages.push(asked, await tide.invoke(asked.tool_calls[0]));
    assert.ok(messages[2] instanceof ToolMessage);
    const answer = await llm.invoke(messages);
    assert.equal(answer.text, 'It came to this: high at noon in Brest');
  });
}

test('a stream', async () => {
  let text = '';
  let last;
  for await (const chunk of await make().bindTools([tide]).stream('calm')) {
    text += chunk.text;
    last = last ? last.concat(chunk) : chunk;
  }
  assert.equal(text, 'You said: calm');
  assert.match(last.response_metadata.id, /^resp_/);
});

test('a stream with a call', async () => {
  let last;
  for await (const chunk of await make().bindTools([tide]).stream(block('tide', { port: 'Kiel' }))) last = last ? last.concat(chunk) : chunk;
  assert.deepEqual(last.tool_calls.map((c) => [c.name, c.args]), [['tide', { port: 'Kiel' }]]);
});

test('structured output', async () => {
  const llm = make().withStructuredOutput(z.object({ port: z.string() }), { method: 'jsonSchema' });
  assert.deepEqual(await llm.invoke('Say only this: {"port":"Oslo"}'), { port: 'Oslo' });
});

test('a shell in a container', async () => {
  const answer = await make().bindTools([{ type: 'shell', environment: { type: 'container_auto' } }]).invoke(block('shell', { commands: ['echo $((41 + 1))'] }));
  assert.match(answer.text, /"stdout":"42\\n"/);
});
