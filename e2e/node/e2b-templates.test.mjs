import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { Sandbox, SandboxNotFoundError, Template, waitForPort, waitForFile } from 'e2b';

const unique = () => 'js-' + Math.random().toString(36).slice(2);

// build builds a template and returns its log.
async function build(template, name, options = {}) {
  const log = [];
  const info = await Template.build(template, name, { ...options, onBuildLogs: (entry) => log.push(entry.message) });
  return { info, log: log.join('\n') };
}

test('a snapshot, with sandboxes that start from it', async () => {
  const sandbox = await Sandbox.create({ envs: { COLOUR: 'blue' }, timeoutMs: 300_000 });
  await sandbox.files.write('a.txt', 'kept');
  const snapshot = await sandbox.createSnapshot();
  await sandbox.files.write('a.txt', 'changed');
  assert.ok((await Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId }).nextItems()).some((s) => s.snapshotId === snapshot.snapshotId));
  const again = await Sandbox.create(snapshot.snapshotId, { timeoutMs: 300_000 });
  assert.equal(await again.files.read('a.txt'), 'kept');
  assert.equal((await again.commands.run('echo $COLOUR')).stdout, 'blue\n');
  await again.kill();
  await sandbox.kill();
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true);
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false);
  await assert.rejects(Sandbox.create(snapshot.snapshotId));
});

test('a template is built, with files, variables, a user and a directory', async () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'berth-e2b-'));
  fs.mkdirSync(path.join(dir, 'app/sub'), { recursive: true });
  fs.writeFileSync(path.join(dir, 'app/main.txt'), 'main');
  fs.writeFileSync(path.join(dir, 'app/sub/deep.txt'), 'deep');
  fs.writeFileSync(path.join(dir, 'one.txt'), 'one');
  const name = unique();
  const template = () =>
    Template({ fileContextPath: dir })
      .fromBaseImage()
      .runCmd('echo "built by $(whoami)" > /tmp/who; sleep 2; cat /tmp/who')
      .setEnvs({ GREETING: 'hello', BOTH: '$GREETING you', PATH: '${PATH}:/my/bin', LITERAL: '$(echo executed)' })
      .runCmd('case "$PATH" in *:/my/bin) ;; *) echo "the PATH is $PATH"; exit 1 ;; esac')
      .copy('app', '/srv/app', { user: 'root', mode: 0o755 })
      .copy('one.txt', 'nested/renamed.txt')
      .runCmd(['mkdir -p /opt/x', 'touch /opt/x/y'], { user: 'root' })
      .setWorkdir('/home/user/work');
  assert.equal(await Template.exists(name), false);
  const { info, log } = await build(template(), name + ':v1', { tags: ['stable'] });
  assert.match(log, /built by user/);
  assert.deepEqual(info.tags.toSorted(), ['stable', 'v1']);
  assert.equal(await Template.exists(name), true);
  const sandbox = await Sandbox.create(name + ':stable', { envs: { OWN: '1' }, timeoutMs: 300_000 });
  const seen = await sandbox.commands.run('pwd; echo $GREETING/$BOTH/$OWN; cat /srv/app/main.txt /srv/app/sub/deep.txt; stat -c "%U %a" /srv/app/main.txt; cat ~/nested/renamed.txt; ls /opt/x');
  assert.equal(seen.stdout, '/home/user/work\nhello/hello you/1\nmaindeeproot 755\noney\n');
  assert.match((await sandbox.commands.run('echo "$PATH $LITERAL"')).stdout, /^\/.*:\/my\/bin \$\(echo executed\)\n$/);
  await sandbox.kill();
  await assert.rejects(Sandbox.create(name), /default/);

  const second = await build(template(), name);
  assert.match(second.log, /CACHED \[builder 7\/7\] WORKDIR/);
  await Template.assignTags(name + ':v1', ['production']);
  assert.deepEqual((await Template.getTags(info.templateId)).map((t) => t.tag).toSorted(), ['default', 'production', 'stable', 'v1']);
  await Template.removeTags(name, 'production');
  assert.equal((await Template.getTags(info.templateId)).length, 3);

  const child = unique();
  await build(Template().fromTemplate(name + ':v1').setUser('root').runCmd('id -un > /root/me'), child);
  const of = await Sandbox.create(child, { timeoutMs: 300_000 });
  assert.equal((await of.commands.run('cat /root/me /srv/app/main.txt; id -un')).stdout, 'root\nmainroot\n');
  await of.kill();
  fs.rmSync(dir, { recursive: true });
});

test('a template whose start command runs in its sandboxes', async () => {
  const name = unique();
  const { log } = await build(
    Template().fromBaseImage().runCmd('date +%s%N > /tmp/index.html').setStartCmd('echo started; cd /tmp && python -m http.server 8123', waitForPort(8123)),
    name,
  );
  assert.match(log, /\[start\] \[stdout\]: started/);
  const sandbox = await Sandbox.create(name, { timeoutMs: 300_000 });
  const get = 'for i in $(seq 600); do curl -sf localhost:8123/index.html && break; sleep 0.1; done';
  const { stdout } = await sandbox.commands.run(get);
  assert.equal(stdout, await sandbox.files.read('/tmp/index.html'));
  await sandbox.kill();
});

test('a build that fails names its step', async () => {
  const template = Template().fromBaseImage().runCmd('true').runCmd('echo broken >&2; exit 7');
  await assert.rejects(build(template, unique()), /echo broken.*exit status 7/s);
  await assert.rejects(build(Template().fromTemplate('no-such-template').runCmd('true'), unique()), /no-such-template/);
});

test('a Dockerfile', async () => {
  const name = unique();
  const template = Template().fromDockerfile('FROM e2bdev/base\nENV A=1\nWORKDIR /srv/d\nRUN echo "$A" > a.txt\nUSER user\nCMD sleep 1000\n');
  await build(template.setReadyCmd(waitForFile('/srv/d/a.txt')), name);
  const sandbox = await Sandbox.create(name, { timeoutMs: 300_000 });
  assert.equal(await sandbox.files.read('/srv/d/a.txt'), '1\n');
  await sandbox.kill();
});

test('forks of a sandbox', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 300_000 });
  await sandbox.files.write('a.txt', 'source');
  const forks = await sandbox.fork({ count: 2 });
  assert.equal(forks.length, 2);
  for (const one of forks) {
    const fork = one.sandbox ?? one;
    assert.notEqual(fork.sandboxId, sandbox.sandboxId);
    assert.equal(await fork.files.read('a.txt'), 'source');
    await fork.kill();
  }
  assert.equal(await sandbox.files.read('a.txt'), 'source');
  await sandbox.kill();
});
