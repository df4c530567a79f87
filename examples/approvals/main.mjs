// Approves commands of a background response from a webhook's handler.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createServer } from 'node:http';
import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: process.env.OPENAI_BASE_URL ?? 'http://127.0.0.1:8080/v1',
  apiKey: process.env.OPENAI_API_KEY ?? 'none',
});
const model = process.env.BERTH_MODEL ?? 'scripted';

const task = 'Make a repository with one commit, and push it: git push --dry-run . HEAD:main';
// What the model "scripted" runs. A language model gets the task only.
const steps = [
  'git init -q -b main && date >when.txt && git add . && git -c user.name=a -c user.email=a@example.com commit -qm one',
  'git log --oneline',
  'git push --dry-run . HEAD:main',
].map((command) => '\n```sh\n' + command + '\n```').join('');

const request = {
  model,
  background: true,
  tools: [{ type: 'shell', environment: { type: 'container_auto' } }],
  berth: { require_approval: { always: { commands: ['git push*'] } } },
};

let approvals = 0;

// ended handles the end of a response. It returns true when nothing is left to approve.
async function ended(response) {
  const pending = response.output.filter((item) => item.type === 'mcp_approval_request');
  if (pending.length === 0) {
    console.log(`${response.id} ${response.status}: ${response.output_text}`);
    await client.containers.delete(response.tools[0].environment.container_id);
    return true;
  }
  const input = pending.map((item) => {
    const { commands } = JSON.parse(item.arguments);
    console.log(`${response.id} ${response.status}: wants to run: ${commands.join('; ')}`);
    const approve = commands.every((command) => command.startsWith('git push --dry-run')); // your policy, or a person
    console.log(approve ? 'approved' : 'refused');
    approvals++;
    return { type: 'mcp_approval_response', approval_request_id: item.id, approve };
  });
  await client.responses.create({ ...request, previous_response_id: response.id, input });
  return false;
}

let finish, fail;
const done = new Promise((resolve, reject) => ([finish, fail] = [resolve, reject]));

let secret;
const server = createServer(async (req, res) => {
  let body = '';
  for await (const piece of req) body += piece;
  try {
    const event = await client.webhooks.unwrap(body, req.headers, secret);
    res.end(); // at once: what follows may take longer than a delivery may
    if (await ended(await client.responses.retrieve(event.data.id))) finish();
  } catch (error) {
    if (!res.writableEnded) res.writeHead(400).end();
    fail(error);
  }
});
await new Promise((listening) => server.listen(Number(process.env.PORT ?? 0), '127.0.0.1', listening));

const berth = (...args) => execFileSync('berth', args, { encoding: 'utf8' }).trim();
let endpoint;
[endpoint, secret] = berth('webhook', 'create', `http://127.0.0.1:${server.address().port}/`).split(' ');
try {
  await client.responses.create({ ...request, input: model === 'scripted' ? task + steps : task });
  await done;
  assert.ok(approvals > 0, 'no command waited for approval');
} finally {
  berth('webhook', 'rm', endpoint);
  server.close();
}
