// Starts a task with one model and continues it with another, in the same container.
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: process.env.OPENAI_BASE_URL ?? 'http://127.0.0.1:8080/v1',
  apiKey: process.env.OPENAI_API_KEY ?? 'none',
});
const first = process.env.BERTH_MODEL ?? 'scripted';
const second = process.env.BERTH_MODEL_2 ?? 'second';

// The models "scripted" and "second" run the commands. A language model gets the task only.
const block = (command) => '\n```sh\n' + command + '\n```';
const input = (model, task, command) => (['scripted', 'second'].includes(model) ? task + block(command) : task);
const tools = [{ type: 'shell', environment: { type: 'container_auto' } }];

const started = await client.responses.create({
  model: first, tools,
  input: input(first, 'Write the ports Kiel, Oslo and Brest to ports.txt, one a line. Export your name as STARTED_BY. Print the number of ports.',
    'printf "Kiel\\nOslo\\nBrest\\n" >ports.txt; export STARTED_BY=scripted; echo "$(wc -l <ports.txt) ports"'),
});
console.log(`${first}: ${started.output_text}`);

const continued = await client.responses.create({
  model: second, tools, previous_response_id: started.id,
  input: input(second, 'Print the ports in alphabetical order in one line, and the value of STARTED_BY.',
    'echo "$(sort ports.txt | xargs), counted by $STARTED_BY"'),
});
console.log(`${second}: ${continued.output_text}`);

const containers = [started, continued].map((response) => response.tools[0].environment.container_id);
console.log(`same container: ${containers[0] === containers[1]}`);
assert.equal(containers[0], containers[1]);
assert.match(JSON.stringify(continued.output), /Brest Kiel Oslo/);
await client.containers.delete(containers[0]);
