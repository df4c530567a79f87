// LangGraph with agents whose model is on Berth, over both of OpenAI's APIs.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HumanMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { Annotation, Command, END, MemorySaver, MessagesAnnotation, START, StateGraph, interrupt } from '@langchain/langgraph';
import { createReactAgent } from '@langchain/langgraph/prebuilt';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';
import { auto, block, client, model as scripted, reciter, sh } from '../node/berth.mjs';

const make = (useResponsesApi, model = reciter) => new ChatOpenAI({ model, useResponsesApi, streamUsage: true, apiKey: client.apiKey, configuration: { baseURL: client.baseURL } });
const tide = tool(async ({ port }) => `high at noon in ${port}`, { name: 'tide', description: 'Says when the tide is high.', schema: z.object({ port: z.string() }) });
const ask = async (agent, text, config) => (await agent.invoke({ messages: [new HumanMessage(text)] }, config)).messages.at(-1).text;

test('ReAct agent over Responses', async () => {
  const agent = createReactAgent({ llm: make(true), tools: [tide] });
  assert.equal(await ask(agent, block('tide', { port: 'Brest' }) + block('tide', { port: 'Kiel' })), 'It came to this: high at noon in Kiel');
});

// The agent names the tool in the message that answers a call.
test('ReAct agent over Chat Completions', async () => {
  const agent = createReactAgent({ llm: make(false), tools: [tide], name: 'harbour' });
  assert.equal(await ask(agent, block('tide', { port: 'Brest' }) + block('tide', { port: 'Kiel' })), 'It came to this: high at noon in Kiel');
});

test('memory over several turns', async () => {
  for (const responses of [true, false]) {
    const agent = createReactAgent({ llm: make(responses), tools: [tide], checkpointer: new MemorySaver() });
    const config = { configurable: { thread_id: '1' } };
    await ask(agent, block('tide', { port: 'Kiel' }), config);
    assert.equal(await ask(agent, 'And now?', config), 'You said: And now?');
    assert.equal((await agent.getState(config)).values.messages.length, 6);
  }
});

test('stream of messages', async () => {
  for (const responses of [true, false]) {
    const agent = createReactAgent({ llm: make(responses), tools: [tide] });
    let text = '';
    for await (const [message] of await agent.stream({ messages: [new HumanMessage(block('tide', { port: 'Oslo' }))] }, { streamMode: 'messages' })) {
      if (message.getType() === 'ai') text += message.text;
    }
    assert.equal(text, 'It came to this: high at noon in Oslo');
  }
});

test('graph with a shell in a container and an approval', async () => {
  const shell = make(true, scripted).bindTools(auto);
  const State = Annotation.Root({ ...MessagesAnnotation.spec, approved: Annotation });
  const app = new StateGraph(State)
    .addNode('approve', () => ({ approved: interrupt('May it go on?') }))
    .addNode('work', async ({ messages }) => ({ messages: [await shell.invoke(messages)] }))
    .addEdge(START, 'approve')
    .addConditionalEdges('approve', ({ approved }) => (approved ? 'work' : END))
    .addEdge('work', END)
    .compile({ checkpointer: new MemorySaver() });
  const config = { configurable: { thread_id: '1' } };
  const waiting = await app.invoke({ messages: [new HumanMessage(sh('echo 41 > n', 'echo $(($(cat n) + 1))'))] }, config);
  assert.equal(waiting.messages.length, 1);
  const done = await app.invoke(new Command({ resume: true }), config);
  assert.equal(done.messages.at(-1).text, '1. exit 0\n2. exit 0: 42');
});
