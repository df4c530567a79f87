// WebSocket mode, with the official client's own class.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ResponsesWS } from 'openai/resources/responses/ws';
import { auto, client, containerOf, model, outputs, sh } from './berth.mjs';

// connect opens a socket, which the test's end closes.
const connect = (t) => {
  const ws = new ResponsesWS(client);
  const events = ws.stream();
  t.after(() => ws.close());
  // next is the next event of the server; an error is one like the others.
  const next = async () => {
    for (;;) {
      const { value, done } = await events.next();
      assert.ok(!done, 'the connection ended');
      assert.notEqual(value.type, 'close', `the connection was closed: ${JSON.stringify(value)}`);
      if (value.type === 'message') return value.message;
      if (value.type === 'error') return value.error.error ?? assert.fail(value.error);
    }
  };
  const create = (request) => ws.send({ type: 'response.create', model, ...request });
  // ask returns a response as it ended, and the events on the way.
  const ask = async (request) => {
    create(request);
    const seen = [];
    for (;;) {
      const event = await next();
      assert.notEqual(event.type, 'error', JSON.stringify(event));
      seen.push(event);
      if (event.type === 'response.completed') return { response: event.response, seen };
    }
  };
  const refused = async (request) => {
    create(request);
    const event = await next();
    assert.equal(event.type, 'error', JSON.stringify(event));
    return event;
  };
  return { ws, next, create, ask, refused };
};

test('socket: a shell runs, turn after turn, in one container', async (t) => {
  const { ask } = connect(t);
  const one = await ask({ input: sh('echo moored > knot'), tools: auto });
  one.seen.forEach((e, i) => assert.equal(e.sequence_number, i));
  assert.equal(one.seen[0].type, 'response.created');
  assert.deepEqual((await client.responses.retrieve(one.response.id)).output, one.response.output);
  const two = await ask({ input: sh('cat knot'), tools: auto, previous_response_id: one.response.id });
  assert.equal(outputs(two.response)[0].stdout, 'moored\n');
  assert.equal(containerOf(two.response), containerOf(one.response));
});

test('socket: a chain that is not stored lives as long as its connection', async (t) => {
  const tools = [...auto, { type: 'function', name: 'look', parameters: { type: 'object', properties: {} }, strict: false }];
  const request = { store: false, tools };
  const look = '```json look\n{}\n```';
  const first = connect(t);
  const one = (await first.ask({ ...request, input: look })).response;
  const call = one.output.find((i) => i.type === 'function_call');
  const answer = { type: 'function_call_output', call_id: call.call_id, output: 'a ship' };
  await assert.rejects(client.responses.retrieve(one.id), { status: 404 });

  const second = connect(t);
  const missing = await second.refused({ ...request, input: [answer], previous_response_id: one.id });
  assert.equal(missing.status, 400);
  assert.deepEqual(
    { ...missing.error, headers: undefined },
    { type: 'invalid_request_error', code: 'previous_response_not_found', param: 'previous_response_id',
      message: `Previous response with id '${one.id}' not found.`, headers: undefined });
  const whole = [{ role: 'user', content: look }, ...one.output, answer];
  await second.ask({ ...request, input: whole, previous_response_id: null });

  const two = (await first.ask({ ...request, input: [answer], previous_response_id: one.id })).response;
  const bad = await first.refused({ ...request, input: [{ ...answer, call_id: 'call_none' }], previous_response_id: two.id });
  assert.equal(bad.error.param, 'input');
  const evicted = await first.refused({ ...request, input: 'x', previous_response_id: two.id });
  assert.equal(evicted.error.code, 'previous_response_not_found');
});

test('socket: a request is prepared before it is asked', async (t) => {
  const { ask } = connect(t);
  const ready = (await ask({ store: false, generate: false, tools: auto, input: sh('hostname') })).response;
  assert.deepEqual(ready.output, []);
  const next = (await ask({ store: false, tools: auto, input: [], previous_response_id: ready.id })).response;
  assert.equal(containerOf(next), containerOf(ready));
  assert.equal(outputs(next)[0].outcome.exit_code, 0);
});

test('socket: lanes go on beside each other', async (t) => {
  const { create, next } = connect(t);
  create({ stream_id: 'slow', input: sh('until [ -e go ]; do sleep 0.05; done'), tools: auto });
  let container;
  while (!container) {
    const event = await next();
    if (event.type === 'response.created') container = containerOf(event.response);
  }
  create({ stream_id: 'quick', input: sh('touch go'), tools: [{ type: 'shell', environment: { type: 'container_reference', container_id: container } }] });
  const ended = [];
  while (ended.length < 2) {
    const event = await next();
    assert.ok(['slow', 'quick'].includes(event.stream_id), JSON.stringify(event));
    if (event.type === 'response.completed') ended.push(event.stream_id);
  }
  assert.deepEqual(ended.toSorted(), ['quick', 'slow']);
});
