// E2B's SDK against several servers behind a proxy that sends each request to the next one.
import assert from 'node:assert/strict';
import test from 'node:test';
import { Sandbox, SandboxNotFoundError } from 'e2b';

const url = process.env.E2B_SANDBOX_URL;
const dir = process.env.SANDBOX_DIR;

test('a sandbox is used through all servers', { timeout: 240_000 }, async () => {
  const sandbox = await Sandbox.create({ allowInternetAccess: false, timeoutMs: 300_000, metadata: { made: 'cluster' } });
  for (let i = 0; i < 6; i++) {
    await sandbox.files.write(`${dir}/${i}.txt`, `content ${i}`);
    assert.equal(await sandbox.files.read(`${dir}/${i}.txt`), `content ${i}`);
    assert.equal((await sandbox.commands.run(`cat ${dir}/${i}.txt`)).stdout, `content ${i}`);
    assert.ok(await sandbox.isRunning());
    assert.equal((await sandbox.getInfo()).metadata.made, 'cluster');
  }
  assert.equal((await sandbox.files.list(dir)).length, 6);

  let watch;
  const seen = new Promise((resolve) => {
    watch = sandbox.files.watchDir(dir, (event) => {
      if (event.name === 'watched.txt') resolve(event.name);
    });
  });
  const watched = await Promise.race([seen, (async () => {
    for (let i = 0; ; i++) {
      await sandbox.files.write(`${dir}/watched.txt`, String(i)); // until the watch has begun
      await Promise.race([seen, new Promise((resolve) => setTimeout(resolve, 100))]);
      if (i > 300) return 'nothing';
    }
  })()]);
  assert.equal(watched, 'watched.txt');
  await (await watch).stop();

  const command = await sandbox.commands.run('read line; echo "got $line"', { background: true, stdin: true });
  await sandbox.commands.sendStdin(command.pid, 'a line\n');
  assert.equal((await command.wait()).stdout, 'got a line\n');

  let shown = '';
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => { shown += Buffer.from(data).toString(); } });
  await sandbox.pty.sendInput(terminal.pid, Buffer.from('echo $((6 * 7)) > /dev/tty; exit\n'));
  await terminal.wait();
  assert.match(shown, /42/);

  const link = await sandbox.downloadUrl(`${dir}/1.txt`);
  for (let i = 0; i < 3; i++) assert.equal(await (await fetch(link)).text(), 'content 1');
  const forged = await fetch(link.replace(/signature=v1_./, 'signature=v1_-'));
  assert.equal(forged.status, 401);
  const stranger = await fetch(`${url}/files?path=${dir}/1.txt`, { headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'X-Access-Token': 'wrong' } });
  assert.equal(stranger.status, 401);
  const contexts = (token) => fetch(`${url}/contexts`, { headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49999', ...token } });
  for (let i = 0; i < 3; i++) {
    assert.equal((await contexts({})).status, 401);
    const listed = await (await contexts({ 'E2b-Traffic-Access-Token': sandbox.trafficAccessToken })).json();
    assert.deepEqual(listed.map((c) => c.language), ['python', 'javascript']);
  }
  const unknown = await fetch(`${url}/health`, { headers: { 'E2b-Sandbox-Id': 'x'.repeat(48) } });
  assert.equal(unknown.status, 502);

  const port = 20_000 + Math.floor(Math.random() * 10_000);
  const web = await sandbox.commands.run(`cd ${dir} && exec python3 -m http.server --bind 127.0.0.1 ${port}`, { background: true });
  const atPort = { headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': String(port) } };
  while ((await fetch(`${url}/2.txt`, atPort)).status !== 200);
  for (let i = 0; i < 3; i++) assert.equal(await (await fetch(`${url}/2.txt`, atPort)).text(), 'content 2');
  await web.kill();

  await sandbox.setTimeout(120_000);
  await sandbox.kill();
  for (let i = 0; i < 3; i++) {
    assert.equal(await sandbox.isRunning(), false);
    await assert.rejects(sandbox.getInfo(), SandboxNotFoundError);
  }
});

test('a sandbox ends at its deadline, which one server knows', { timeout: 120_000 }, async () => {
  for (let i = 0; i < 3; i++) {
    const sandbox = await Sandbox.create({ allowInternetAccess: false, timeoutMs: 60_000 });
    await sandbox.setTimeout(0);
    while (await sandbox.isRunning());
    await assert.rejects(sandbox.getInfo(), SandboxNotFoundError);
  }
});
