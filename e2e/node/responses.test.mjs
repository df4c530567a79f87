import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';
import { auto, client, containerOf, model, outputs, run, sh } from './berth.mjs';

test('a plain answer', async () => {
  const r = await client.responses.create({ model, input: 'Hello, harbour.' });
  assert.equal(r.object, 'response');
  assert.equal(r.status, 'completed');
  assert.equal(r.output_text, 'Hello, harbour.');
  assert.match(r.id, /^resp_[0-9a-f]+$/);
  assert.equal(r.output[0].role, 'assistant');
  assert.ok(r.usage.total_tokens > 0);
  assert.deepEqual(await client.responses.retrieve(r.id).then((x) => x.output), r.output);
  const items = await client.responses.inputItems.list(r.id);
  assert.equal(items.data.length, 1);
  assert.equal(items.data[0].content[0].text, 'Hello, harbour.');
  await client.responses.delete(r.id);
  await assert.rejects(client.responses.retrieve(r.id), OpenAI.NotFoundError);
});

test('the stream helper ends with the response that the server kept', async () => {
  const stream = client.responses.stream({ model, input: sh('echo one; echo two >&2; exit 3'), tools: auto });
  const seen = [];
  for await (const event of stream) seen.push(event);
  const final = await stream.finalResponse();
  seen.forEach((e, i) => assert.equal(e.sequence_number, i));
  assert.deepEqual(outputs(final), [{ outcome: { type: 'exit', exit_code: 3 }, stdout: 'one\n', stderr: 'two\n' }]);
  const kept = await client.responses.retrieve(final.id);
  assert.deepEqual(kept.output, final.output.map(({ parsed, ...item }) => item).map(withoutParsed));
});

// The helper adds fields of its own to text.
const withoutParsed = (item) =>
  item.type === 'message' ? { ...item, content: item.content.map(({ parsed, ...part }) => part) } : item;

test('a stream is resumed where it broke', async () => {
  const whole = [];
  for await (const e of await client.responses.create({ model, input: sh('echo hi'), tools: auto, stream: true })) whole.push(e);
  const id = whole[0].response.id;
  const rest = [];
  for await (const e of await client.responses.retrieve(id, { stream: true, starting_after: 4 })) rest.push(e);
  assert.deepEqual(rest.map((e) => [e.sequence_number, e.type]), whole.slice(5).map((e) => [e.sequence_number, e.type]));
});

test('a package installed in turn one is used in turn two', async () => {
  const wheel = `python3 -m venv --system-site-packages env && mkdir -p idx && python3 - <<'PY'
import zipfile
with zipfile.ZipFile('idx/harbour-1.0-py3-none-any.whl', 'w') as z:
    z.writestr('harbour.py', 'def moor(): return "moored"')
    z.writestr('harbour-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: harbour\\nVersion: 1.0\\n')
    z.writestr('harbour-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: e2e\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    z.writestr('harbour-1.0.dist-info/RECORD', 'harbour.py,,\\nharbour-1.0.dist-info/METADATA,,\\nharbour-1.0.dist-info/WHEEL,,\\nharbour-1.0.dist-info/RECORD,,\\n')
PY
env/bin/pip install --quiet --no-index --find-links idx harbour && . env/bin/activate`;
  const one = await run(sh(wheel));
  assert.equal(outputs(one)[0].outcome.exit_code, 0, outputs(one)[0].stderr);
  const two = await run(sh('python3 -c "import harbour; print(harbour.moor())"'), { previous_response_id: one.id });
  assert.equal(outputs(two)[0].stdout, 'moored\n', outputs(two)[0].stderr);
  assert.equal(containerOf(two), containerOf(one));
});

test('two children of one response go on from it separately', async () => {
  const root = await run(sh('export WHO=root; cd /tmp'));
  const [a, b] = await Promise.all(['a', 'b'].map((x) => run(sh(`echo ${x} $WHO $PWD`), { previous_response_id: root.id })));
  assert.equal(outputs(a)[0].stdout, 'a root /tmp\n');
  assert.equal(outputs(b)[0].stdout, 'b root /tmp\n');
});

test('commands of one call run at the same time', async () => {
  const r = await run('```sh\nmkfifo p; echo ping > p\n---parallel---\nuntil [ -p p ]; do sleep 0.05; done; cat p\n```');
  assert.deepEqual(outputs(r).map((o) => [o.outcome.exit_code, o.stdout]), [[0, ''], [0, 'ping\n']]);
});

test('a timeout ends the whole tree and keeps what was printed', async () => {
  const r = await run('```sh timeout_ms=1500\necho before; setsid sh -c "echo $$ > /tmp/daemon; exec sleep 77.25" & sleep 78.25\n```\n' + sh('ps -eo args | grep -c "[s]leep 7[78].25"'));
  const [slow, left] = outputs(r);
  assert.deepEqual([slow.outcome, slow.stdout], [{ type: 'timeout' }, 'before\n']);
  assert.equal(left.stdout, '0\n');
});

test('a server started in the background lives on', async () => {
  const one = await run(sh('echo served > page.txt; python3 -m http.server 8123 & sleep 1; echo started'));
  assert.equal(outputs(one)[0].stdout, 'started\n');
  const two = await run(sh('curl -s http://127.0.0.1:8123/page.txt'), { previous_response_id: one.id });
  assert.equal(outputs(two)[0].stdout, 'served\n');
});

test('huge, binary and foreign output', async () => {
  const r = await run(['```sh max_output_length=1000\nseq 1 200000\n```', sh('head -c 300 /dev/urandom; printf "\\0\\377"', 'echo "Grüße, 世界 🚢"')].join('\n'));
  const [huge, binary, unicode] = outputs(r);
  assert.ok(huge.stdout.length < 1200 && huge.stdout.startsWith('1\n2\n') && huge.stdout.endsWith('200000\n'), huge.stdout);
  const [, file] = huge.stdout.match(/characters left out; all of it is in (\S+) …\]/);
  const more = await run(sh(`sed -n 100000p ${file}; wc -l < ${file}`), { previous_response_id: r.id });
  assert.equal(outputs(more)[0].stdout, '100000\n200000\n');
  assert.ok(binary.stdout.includes('\ufffd') && binary.stdout.includes('\0'));
  assert.equal(unicode.stdout, 'Grüße, 世界 🚢\n');
});

test('a function goes to the client and back', async () => {
  const tools = [{ type: 'function', name: 'tide', parameters: { type: 'object', properties: { port: { type: 'string' } }, required: ['port'], additionalProperties: false }, strict: true }];
  const ask = await client.responses.create({ model, tools, input: '```json tide\n{"port":"Brest"}\n```' });
  const call = ask.output.find((i) => i.type === 'function_call');
  assert.deepEqual([call.name, JSON.parse(call.arguments)], ['tide', { port: 'Brest' }]);
  const answer = await client.responses.create({
    model, tools, previous_response_id: ask.id,
    input: [{ type: 'function_call_output', call_id: call.call_id, output: 'high at noon' }],
  });
  assert.match(answer.output_text, /high at noon/);
  // The same without the server's memory: the client sends the history itself.
  const replay = await client.responses.create({
    model, tools, store: false,
    input: [{ role: 'user', content: '```json tide\n{"port":"Brest"}\n```' }, ...ask.output, { type: 'function_call_output', call_id: call.call_id, output: 'low at six' }],
  });
  assert.match(replay.output_text, /low at six/);
  await assert.rejects(client.responses.retrieve(replay.id), OpenAI.NotFoundError);
});

test('a background response is polled and cancelled', async () => {
  let r = await client.responses.create({ model, input: sh('echo on; sleep 300'), tools: auto, background: true });
  assert.ok(['queued', 'in_progress'].includes(r.status));
  r = await client.responses.cancel(r.id);
  assert.equal(r.status, 'cancelled');
  r = await client.responses.create({ model, input: 'short', background: true });
  for (const end = Date.now() + 20_000; r.status !== 'completed' && Date.now() < end; ) r = await client.responses.retrieve(r.id);
  assert.equal(r.output_text, 'short');
});

test('errors have the shape that the client knows', async () => {
  const missing = { model, input: 'x', previous_response_id: 'resp_0123456789' };
  await assert.rejects(client.responses.create(missing), (e) => {
    assert.ok(e instanceof OpenAI.BadRequestError);
    assert.deepEqual([e.code, e.param, e.type], ['previous_response_not_found', 'previous_response_id', 'invalid_request_error']);
    assert.match(e.requestID, /^req_/);
    return true;
  });
  await assert.rejects(client.responses.create({ model: 'no-such-model', input: 'x' }), (e) => e.code === 'model_not_found' && e instanceof OpenAI.NotFoundError);
  await assert.rejects(client.responses.create({ model, input: 'x', temprature: 1 }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'temprature');
  await assert.rejects(client.responses.create({ model, input: 'x', temperature: 9 }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'temperature');
  await assert.rejects(client.responses.create({ model, input: 'x', tools: [{ type: 'sonar' }] }), OpenAI.BadRequestError);
  await assert.rejects(client.containers.retrieve('cntr_0123456789'), OpenAI.NotFoundError);
  await assert.rejects(client.files.retrieve('file-0123456789'), OpenAI.NotFoundError);
});

test('models are listed', async () => {
  const ids = [];
  for await (const m of client.models.list()) ids.push(m.id);
  assert.ok(ids.includes('scripted'), ids.join());
  assert.equal((await client.models.retrieve('scripted')).object, 'model');
});
