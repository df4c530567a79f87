// The tools that Berth runs, by OpenAI's client.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { call, cells, client, drawer, items, mcpURL, model, siteURL } from './berth.mjs';

test('code_interpreter: state and a chart, streamed', async () => {
  const tools = [{ type: 'code_interpreter', container: { type: 'auto' } }];
  const include = ['code_interpreter_call.outputs'];
  const chart = "import matplotlib.pyplot as plt\nplt.bar(['a'], [x])\nplt.show()";
  const one = await client.responses.create({ model, tools, include, input: cells('x = 41', chart) });
  const [image] = items(one, 'code_interpreter_call')[1].outputs;
  assert.equal(image.type, 'image');
  assert.equal(Buffer.from(image.url.split(',')[1], 'base64').subarray(1, 4).toString(), 'PNG');
  const stream = client.responses.stream({ model, tools, include, input: cells('x + 1'), previous_response_id: one.id });
  let code = '';
  stream.on('response.code_interpreter_call_code.delta', (e) => (code += e.delta));
  const [two] = items(await stream.finalResponse(), 'code_interpreter_call');
  assert.deepEqual([code, two.code, two.outputs[0].logs], ['x + 1\n', 'x + 1\n', '42']);
  await client.containers.delete(two.container_id);
});

test('mcp: tools are listed, approved and called', async () => {
  const tools = [{ type: 'mcp', server_label: 'tides', server_url: mcpURL, require_approval: 'always' }];
  const one = await client.responses.create({ model, tools, input: call('tides__tide', { port: 'Brest' }) });
  assert.deepEqual(items(one, 'mcp_list_tools')[0].tools.map((t) => t.name), ['tide']);
  const [wanted] = items(one, 'mcp_approval_request');
  const input = [{ type: 'mcp_approval_response', approval_request_id: wanted.id, approve: true }];
  const two = await client.responses.create({ model, tools, input, previous_response_id: one.id });
  const [done] = items(two, 'mcp_call');
  assert.deepEqual([done.output, done.error, done.approval_request_id], ['high at noon in Brest', null, wanted.id]);
});

test('web_search: a search, a page and a citation', async () => {
  const input = call('web_search', { type: 'search', queries: ['tides'] }) + call('web_search', { type: 'open_page', url: siteURL + '/tides' });
  const r = await client.responses.create({ model, input, tools: [{ type: 'web_search' }], include: ['web_search_call.action.sources'] });
  const [search, page] = items(r, 'web_search_call').map((i) => i.action);
  assert.deepEqual([search.type, search.sources.map((s) => s.url), page.type], ['search', [siteURL + '/tides'], 'open_page']);
  const { text, annotations } = r.output.at(-1).content[0];
  assert.equal(annotations.length, 2);
  for (const a of annotations) {
    assert.deepEqual([a.type, a.url, a.title], ['url_citation', siteURL + '/tides', 'Tides of Brest']);
    assert.ok(text.slice(a.start_index, a.end_index).includes(siteURL));
  }
});

test("image_generation: the upstream's own, streamed, in a chain", async () => {
  const tools = [{ type: 'image_generation', partial_images: 1 }];
  const stream = client.responses.stream({ model: drawer, input: 'Draw a ship.', tools });
  const seen = [];
  stream.on('event', (e) => { if (e.type.includes('image') || e.item?.type === 'image_generation_call') seen.push(e); });
  const one = await stream.finalResponse();
  const steps = ['in_progress', 'generating', 'partial_image', 'completed'].map((k) => 'response.image_generation_call.' + k);
  assert.deepEqual(seen.map((e) => e.type), ['response.output_item.added', ...steps, 'response.output_item.done']);
  const [image] = items(one, 'image_generation_call');
  assert.deepEqual([seen[3].partial_image_b64, seen[3].item_id, image.result], ['cGFydA==', image.id, 'aW1n']);
  const two = await client.responses.create({ model: drawer, input: 'Another.', tools, previous_response_id: one.id });
  assert.equal(two.output_text, '1 images came before.');
});

test("image_generation: another model's, and an edit", async () => {
  const task = call('image_generation', { prompt: 'a ship' }) + call('image_generation', { prompt: 'blue', images: [-1] });
  const r = await client.responses.create({ model, input: task, tools: [{ type: 'image_generation' }] });
  const drawn = items(r, 'image_generation_call').map((i) => Buffer.from(i.result, 'base64').toString());
  assert.deepEqual(drawn, ['GIF89aa ship', 'GIF89ablue image:GIF89aa ship']);
});

test('computer: actions, a safety check, a screenshot', async () => {
  const tools = [{ type: 'computer' }];
  const click = call('computer', { actions: [{ type: 'click', x: 10, y: 20 }], safety_checks: ['It looks odd.'] });
  for (const [name, input] of [[drawer, 'Click.'], [model, click]]) {
    const one = await client.responses.create({ model: name, input, tools });
    const [act] = items(one, 'computer_call');
    const [check] = act.pending_safety_checks;
    assert.deepEqual([act.actions[0].type, act.actions[0].x, check.message], ['click', 10, 'It looks odd.']);
    const screen = { type: 'computer_call_output', call_id: act.call_id, output: { type: 'computer_screenshot', image_url: 'data:image/png;base64,aW1n' } };
    const next = (more) => client.responses.create({ model: name, tools, previous_response_id: one.id, input: [{ ...screen, ...more }] });
    await assert.rejects(next({}), (e) => e.status === 400 && e.message.includes(check.id));
    const two = await next({ acknowledged_safety_checks: [check] });
    if (name === drawer) assert.equal(two.output_text, 'It came to this: 1 acknowledged, data:image/png;base64,aW1n');
  }
});

test('a custom tool with a grammar', async () => {
  const definition = 'start: "SELECT " /[a-z]+/ " FROM " /[a-z]+/ ";"';
  const tools = [{ type: 'custom', name: 'sql', format: { type: 'grammar', syntax: 'lark', definition } }];
  for (const [name, input] of [[drawer, 'Ask.'], [model, call('sql', { input: 'SELECT name FROM ships;' })]]) {
    const one = await client.responses.create({ model: name, input, tools });
    const [asked] = items(one, 'custom_tool_call');
    assert.deepEqual([asked.name, asked.input], ['sql', 'SELECT name FROM ships;']);
    const output = [{ type: 'custom_tool_call_output', call_id: asked.call_id, output: 'Vasa' }];
    const two = await client.responses.create({ model: name, input: output, tools, previous_response_id: one.id });
    assert.ok(two.output_text.includes('Vasa'));
  }
});
