import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Sandbox } from '@e2b/desktop';

// create starts a desktop. The client allows it ten seconds, which a busy machine may exceed.
async function create(options = {}) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await Sandbox.create({ timeoutMs: 300_000, ...options });
    } catch (e) {
      if (attempt === 5 || !/Could not start/.test(e.message)) throw e;
    }
  }
}

async function until(ok) {
  for (const end = Date.now() + 60_000; Date.now() < end; ) if (await ok()) return;
  assert.fail('waited in vain');
}

test('a desktop with mouse, keyboard and screenshots', async () => {
  const desktop = await create({ resolution: [800, 600] });
  const { width, height } = await desktop.getScreenSize();
  assert.deepEqual([width, height], [800, 600]);
  await desktop.moveMouse(123, 45);
  assert.deepEqual(await desktop.getCursorPosition(), { x: 123, y: 45 });
  await desktop.leftClick(400, 300);
  await desktop.drag([10, 10], [60, 70]);
  await desktop.scroll('down', 2);
  const shot = Buffer.from(await desktop.screenshot());
  assert.deepEqual([shot.subarray(1, 4).toString(), shot.readUInt32BE(16), shot.readUInt32BE(20)], ['PNG', 800, 600]);
  await desktop.launch('debian-xterm');
  await until(async () => (await desktop.getApplicationWindows('xterm').catch(() => [])).some((w) => w));
  const [window] = await desktop.getApplicationWindows('xterm');
  assert.ok(await desktop.getWindowTitle(window));
  await desktop.commands.run(`xdotool windowactivate --sync ${window}`).catch(() => {});
  await until(async () => {
    await desktop.write('touch /tmp/typed');
    await desktop.press('enter');
    return desktop.files.exists('/tmp/typed');
  });
  await desktop.kill();
});

test('a stream of the desktop', async () => {
  const desktop = await create();
  await desktop.stream.start({ requireAuth: true });
  const url = desktop.stream.getUrl({ authKey: desktop.stream.getAuthKey(), viewOnly: true });
  assert.match(url, /vnc\.html\?.*view_only=true/);
  const page = await desktop.commands.run('curl -s http://127.0.0.1:6080/vnc.html | grep -c noVNC');
  assert.ok(Number(page.stdout) > 0);
  await desktop.stream.stop();
  await desktop.kill();
});
