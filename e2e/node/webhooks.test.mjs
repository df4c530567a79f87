import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createServer } from 'node:http';
import { test } from 'node:test';
import OpenAI from 'openai';
import { client, model } from './berth.mjs';

// The operator's command, on the state of the server that is tested.
const berth = (...args) => execFileSync(process.env.BERTH_BIN, args, { encoding: 'utf8' });

// endpoint takes deliveries and gives them one by one.
async function endpoint() {
  const waiting = [];
  const came = [];
  const server = createServer(async (req, res) => {
    let body = '';
    for await (const piece of req) body += piece;
    res.end();
    const delivery = { headers: req.headers, body };
    waiting.length ? waiting.shift()(delivery) : came.push(delivery);
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  return {
    url: `http://127.0.0.1:${server.address().port}/hook`,
    next: () => (came.length ? came.shift() : new Promise((resolve) => waiting.push(resolve))),
    close: () => server.close(),
  };
}

test('the client unwraps what a webhook endpoint is sent', async () => {
  const hook = await endpoint();
  const [id, secret] = berth('webhook', 'create', hook.url).trim().split(' ');
  try {
    const r = await client.responses.create({ model, input: 'Hello.', background: true });
    let headers, body, event;
    do { // a background response of an earlier test may end only now
      ({ headers, body } = await hook.next());
      event = await client.webhooks.unwrap(body, headers, secret);
    } while (event.data.id !== r.id);
    assert.equal(event.object, 'event');
    assert.equal(event.type, 'response.completed');
    assert.match(event.id, /^evt_/);
    assert.ok(Math.abs(event.created_at - Date.now() / 1000) < 60);
    assert.equal((await client.responses.retrieve(event.data.id)).output_text, 'Hello.');
    await assert.rejects(client.webhooks.unwrap(body.replace('completed', 'failed'), headers, secret), OpenAI.InvalidWebhookSignatureError);
    await assert.rejects(client.webhooks.unwrap(body, headers, 'whsec_' + btoa('another')), OpenAI.InvalidWebhookSignatureError);
  } finally {
    berth('webhook', 'rm', id);
    hook.close();
  }
});

test('endpoints are made, changed and deleted by the client', async () => {
  const made = await client.webhooks.create({ name: 'mine', url: 'https://hooks.example/a', event_types: ['response.completed'] });
  assert.match(made.signing_secret, /^whsec_/);
  const seen = [];
  for await (const e of client.webhooks.list()) seen.push(e.id);
  assert.deepEqual(seen, [made.id]);
  const changed = await client.webhooks.update(made.id, { event_types: ['response.failed', 'response.completed'] });
  assert.deepEqual(changed.event_types, ['response.completed', 'response.failed']);
  const renewed = await client.webhooks.rotateSecret(made.id);
  assert.notEqual(renewed.signing_secret, made.signing_secret);
  assert.equal((await client.webhooks.retrieve(made.id)).signing_secret, undefined);
  assert.ok((await client.webhooks.eventTypes.list()).data.includes('response.cancelled'));
  assert.equal((await client.webhooks.delete(made.id)).deleted, true);
  await assert.rejects(client.webhooks.retrieve(made.id), OpenAI.NotFoundError);
});
