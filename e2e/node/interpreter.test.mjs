import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Sandbox } from '@e2b/code-interpreter';

test('code runs, with text, logs, results and errors', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 300_000 });
  let printed = '';
  const run = await sandbox.runCode('import sys, os\nprint("out"); print("err", file=sys.stderr)\nx = 41\nos.getcwd(), x + 1', { onStdout: (o) => (printed += o.line) });
  assert.equal(run.text, "('/home/user', 42)");
  assert.equal(printed, 'out\n');
  assert.deepEqual([run.logs.stdout.join(''), run.logs.stderr.join('')], ['out\n', 'err\n']);
  const next = await sandbox.runCode('"x is " + str(x)');
  assert.equal(next.text, 'x is 41');
  assert.equal(next.executionCount, run.executionCount + 1);
  const failed = await sandbox.runCode('1 / 0');
  assert.equal(failed.error.name, 'ZeroDivisionError');
  assert.equal(failed.error.value, 'division by zero');
  assert.match(failed.error.traceback, /1 \/ 0/);
  assert.equal((await sandbox.runCode('import os; os.environ.get("COLOUR")', { envs: { COLOUR: "it's" } })).text, '"it\'s"'.slice(1, -1));
  assert.equal((await sandbox.runCode('os.environ.get("COLOUR") is None')).text, 'True');
  await sandbox.kill();
});

test('rich results and typed charts', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 300_000 });
  const rich = await sandbox.runCode(`
from IPython.display import display, HTML, Markdown, SVG, JSON, Latex, Javascript
for shown in HTML("<b>b</b>"), Markdown("*m*"), SVG("<svg xmlns='http://www.w3.org/2000/svg'/>"), JSON({"a": 1}), Latex("$x$"), Javascript("1"):
    display(shown)
import pandas as pd
pd.DataFrame({"a": [1, 2], "b": ["x", None]})`);
  const all = rich.results.flatMap((r) => r.formats());
  for (const format of ['html', 'markdown', 'svg', 'json', 'latex', 'javascript', 'data']) assert.ok(all.includes(format), format);
  assert.deepEqual(rich.results.at(-1).data, { a: [1, 2], b: ['x', null] });
  assert.deepEqual(rich.results.map((r) => r.isMainResult), [false, false, false, false, false, false, true]);
  const plot = async (code) => {
    const run = await sandbox.runCode('import matplotlib.pyplot as plt\n' + code + '\nplt.show()');
    assert.equal(run.error, undefined, run.error?.traceback);
    assert.ok(run.results[0].png, 'no image');
    return run.results[0].chart;
  };
  const line = await plot('plt.plot([1, 2], [3, 4], label="a"); plt.xlabel("Time (s)"); plt.title("T")');
  assert.deepEqual([line.type, line.title, line.x_label, line.x_unit, line.x_scale], ['line', 'T', 'Time (s)', 's', 'linear']);
  assert.deepEqual(line.elements, [{ label: 'a', points: [[1, 3], [2, 4]] }]);
  assert.equal((await plot('plt.scatter([1, 2], [3, 4])')).type, 'scatter');
  const bar = await plot('plt.bar(["x", "y"], [1, 2], label="g")');
  assert.deepEqual([bar.type, bar.elements], ['bar', [{ label: 'x', group: 'g', value: 1 }, { label: 'y', group: 'g', value: 2 }]]);
  const pie = await plot('plt.pie([1, 9], labels=["p", "q"])');
  assert.deepEqual([pie.type, pie.elements.map((e) => [e.label, e.angle])], ['pie', [['p', 36], ['q', 324]]]);
  const box = await plot('plt.boxplot([[1, 2, 3, 4, 20]])');
  assert.deepEqual([box.type, box.elements[0].median, box.elements[0].outliers], ['box_and_whisker', 3, [20]]);
  const both = await plot('f, (a, b) = plt.subplots(1, 2); a.plot([1, 2]); b.bar([1], [2])');
  assert.deepEqual([both.type, both.elements.map((e) => e.type)], ['superchart', ['line', 'bar']]);
  await sandbox.kill();
});

test('contexts have their own variables and directories', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 300_000 });
  const context = await sandbox.createCodeContext({ cwd: '/tmp' });
  assert.deepEqual([context.language, context.cwd], ['python', '/tmp']);
  await sandbox.runCode('x = 1');
  await sandbox.runCode('import os; x = os.getcwd()', { context });
  assert.equal((await sandbox.runCode('x', { context })).text, '/tmp');
  assert.equal((await sandbox.runCode('x')).text, '1');
  assert.deepEqual((await sandbox.listCodeContexts()).map((c) => c.language), ['python', 'javascript', 'python']);
  await sandbox.restartCodeContext(context);
  assert.equal((await sandbox.runCode('x', { context })).error.name, 'NameError');
  await sandbox.removeCodeContext(context);
  await assert.rejects(sandbox.runCode('x', { requestTimeoutMs: 5_000, context }), /not found/);
  assert.deepEqual((await sandbox.listCodeContexts()).map((c) => c.language), ['python', 'javascript']);
  const rooted = await sandbox.createCodeContext({ cwd: '/root' });
  assert.equal((await sandbox.runCode('import os; os.getcwd()', { context: rooted })).text, '/root');
  await assert.rejects(sandbox.createCodeContext({ cwd: '/none' }));
  for (const language of ['java', 'cobol']) {
    const refused = new RegExp(`no kernel for '${language}'. It has: .*python3`);
    await assert.rejects(sandbox.runCode('1', { requestTimeoutMs: 5_000, language }), refused);
    await assert.rejects(sandbox.createCodeContext({ language }), refused);
  }
  await sandbox.kill();
});

test('each language has a kernel and its own directory', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 300_000 });
  assert.deepEqual((await sandbox.listCodeContexts()).map((c) => [c.language, c.cwd]), [['python', '/home/user'], ['javascript', '/home/user']]);
  for (const [language, code, want] of [
    ['js', 'console.log(`${process.cwd()} ${1 + 1}`)', '/home/user 2'],
    ['ts', 'const n: number = 2; console.log(`${process.cwd()} ${n}`)', '/home/user 2'],
    ['bash', 'echo "$PWD $((1 + 1))"', '/home/user 2'],
  ]) {
    const run = await sandbox.runCode(code, { language });
    assert.equal(run.logs.stdout.join('').trim(), want, `${language}: ${JSON.stringify(run)}`);
    const context = await sandbox.createCodeContext({ language, cwd: '/tmp' });
    assert.match((await sandbox.runCode(code, { context })).logs.stdout.join(''), /^\/tmp 2/, language);
  }
  await sandbox.kill();
});

test('images of Pillow are results when they are shown or saved', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 300_000 });
  const image = 'from PIL import Image\nimage = Image.new("RGB", (2, 2))\n';
  for (const last of ['image.show(); print("shown")', 'image.save("/tmp/a.png"); print("saved")', 'image']) {
    const run = await sandbox.runCode(image + last);
    assert.equal(run.results.length, 1, `${last}: ${JSON.stringify(run)}`);
    assert.ok(run.results[0].png, last);
  }
  const run = await sandbox.runCode('import io\nimage.save(io.BytesIO(), "PNG")');
  assert.equal(run.results.length, 0);
  await sandbox.kill();
});

test('a timeout interrupts the code, and the variables are kept', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 300_000 });
  await sandbox.runCode('x = 1');
  await assert.rejects(sandbox.runCode('import time\nx = 2\nwhile True: time.sleep(0.1)', { timeoutMs: 2_000 }), /timed out/i);
  assert.equal((await sandbox.runCode('x', { timeoutMs: 60_000 })).text, '2');
  await sandbox.kill();
});
