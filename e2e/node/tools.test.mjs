// The tools that Berth runs, by OpenAI's client.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { call, cells, client, items, mcpURL, model, siteURL } from './berth.mjs';

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
