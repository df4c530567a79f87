import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CommandExitError, Sandbox, SandboxNotFoundError, Secret, SecretNotFoundError, Volume, VolumePathNotFoundError } from 'e2b';
import { client, model, sh } from './berth.mjs';

test('a command runs in a sandbox', async () => {
  const sandbox = await Sandbox.create({ envs: { COLOUR: 'blue' }, timeoutMs: 60_000 });
  const result = await sandbox.commands.run('echo $COLOUR; pwd; echo oops >&2');
  assert.deepEqual([result.exitCode, result.stdout, result.stderr], [0, 'blue\n/home/user\n', 'oops\n']);
  await assert.rejects(sandbox.commands.run('exit 3'), (e) => e instanceof CommandExitError && e.exitCode === 3);
  assert.equal(await sandbox.kill(), true);
  assert.equal(await sandbox.kill(), false);
  const events = await fetch(`${process.env.E2B_API_URL}/events/sandboxes/${sandbox.sandboxId}`, { headers: { 'X-API-Key': process.env.E2B_API_KEY } });
  assert.deepEqual((await events.json()).map((e) => e.type), ['sandbox.lifecycle.killed', 'sandbox.lifecycle.created']);
  await assert.rejects(sandbox.commands.run('true'));
});

test('a command runs in the background, with input', async () => {
  const sandbox = await Sandbox.create();
  let printed = '';
  const command = await sandbox.commands.run('read line; echo got $line', { background: true, stdin: true, onStdout: (text) => (printed += text) });
  assert.ok((await sandbox.commands.list()).some((c) => c.pid === command.pid));
  await sandbox.commands.sendStdin(command.pid, 'it\n');
  assert.equal((await command.wait()).stdout, 'got it\n');
  assert.equal(printed, 'got it\n');
  const endless = await sandbox.commands.run('sleep 1000', { background: true });
  assert.equal(await endless.kill(), true);
  await sandbox.kill();
});

test('files are written, listed, watched and removed', async () => {
  const sandbox = await Sandbox.create();
  await sandbox.files.makeDir('watched');
  const seen = new Promise((resolve) => sandbox.files.watchDir('watched', (event) => event.name === 'b' && resolve(event.type)));
  await sandbox.files.write('a.txt', 'content');
  assert.equal((await sandbox.commands.run('cat a.txt')).stdout, 'content');
  assert.equal(await sandbox.files.read('/home/user/a.txt'), 'content');
  assert.ok((await sandbox.files.list('.')).some((f) => f.name === 'a.txt'));
  await sandbox.files.rename('a.txt', 'c.txt');
  assert.deepEqual([await sandbox.files.exists('a.txt'), await sandbox.files.exists('c.txt')], [false, true]);
  await sandbox.files.remove('c.txt');
  await sandbox.files.write('watched/b', '1');
  assert.ok(await seen);
  await sandbox.kill();
});

test('a terminal', async () => {
  const sandbox = await Sandbox.create();
  let printed = '';
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => (printed += Buffer.from(data).toString()) });
  await sandbox.pty.sendInput(terminal.pid, Buffer.from('stty size; exit\n'));
  await terminal.wait();
  assert.match(printed, /24 80/);
  await sandbox.kill();
});

test('signed URLs', async () => {
  const sandbox = await Sandbox.create();
  const put = await sandbox.uploadUrl('up.txt', { useSignatureExpiration: 60 });
  const form = new FormData();
  form.append('file', new Blob(['signed']), 'up.txt');
  assert.equal((await fetch(put, { method: 'POST', body: form })).status, 200);
  const get = await sandbox.downloadUrl('up.txt');
  assert.equal(await (await fetch(get)).text(), 'signed');
  for (const wrong of [get.replace('up.txt', 'other.txt'), get.replace(/signature=v1_./, 'signature=v1_x'), put.replace(/signature_expiration=\d+/, 'signature_expiration=1')]) {
    assert.equal((await fetch(wrong)).status, 401, wrong);
  }
  await sandbox.kill();
});

test('sandboxes are listed by metadata, and have a deadline', async () => {
  const user = 'eve ' + Math.random();
  const sandbox = await Sandbox.create({ metadata: { user, team: 'a&b=c' }, timeoutMs: 60_000 });
  const found = await Sandbox.list({ query: { metadata: { user, team: 'a&b=c' } } }).nextItems();
  assert.deepEqual(found.map((s) => [s.sandboxId, s.state, s.metadata.user]), [[sandbox.sandboxId, 'running', user]]);
  assert.deepEqual(await Sandbox.list({ query: { metadata: { user: 'another' } } }).nextItems(), []);
  await sandbox.setTimeout(120_000);
  const left = (await sandbox.getInfo()).endAt - Date.now();
  assert.ok(left > 100_000 && left <= 121_000, `${left} ms are left`);
  await sandbox.setTimeout(0);
  while (await sandbox.isRunning());
  await assert.rejects(sandbox.getInfo(), SandboxNotFoundError);
});

test('a sandbox is paused with its memory, and connected to again', async () => {
  const sandbox = await Sandbox.create();
  const counter = await sandbox.commands.run('n=0; while read x; do n=$((n+1)); echo $n; done', { background: true, stdin: true });
  await counter.disconnect();
  assert.equal(await sandbox.pause(), true);
  assert.equal(await sandbox.isRunning(), false);
  assert.deepEqual((await Sandbox.list({ query: { state: ['paused'] } }).nextItems()).map((s) => s.sandboxId), [sandbox.sandboxId]);
  const again = await Sandbox.connect(sandbox.sandboxId);
  const known = await again.commands.list();
  assert.ok(known.some((c) => c.pid === counter.pid));
  await again.kill();
});

test('a sandbox is a container', async () => {
  const sandbox = await Sandbox.create();
  await sandbox.files.write('/mnt/data/a.txt', 'shared');
  const container_id = 'cntr_' + sandbox.sandboxId;
  assert.equal((await client.containers.retrieve(container_id)).status, 'running');
  const r = await client.responses.create({ model, input: sh('cat a.txt'), tools: [{ type: 'shell', environment: { type: 'container_reference', container_id } }] });
  assert.match(r.output_text, /shared/);
  await client.containers.delete(container_id);
  assert.equal(await sandbox.isRunning(), false);
  await assert.rejects(sandbox.getInfo(), SandboxNotFoundError);
});

test('a sandbox without a network', async () => {
  const sandbox = await Sandbox.create({ allowInternetAccess: false });
  await assert.rejects(sandbox.commands.run('python3 -c "import socket; socket.create_connection((\'1.1.1.1\', 80), 3)"'));
  await sandbox.kill();
  await assert.rejects(Sandbox.create('no-such-template'), /no-such-template/);
});

test('a volume keeps its files between sandboxes', async () => {
  const volume = await Volume.create(`js-${Date.now()}`);
  const volumeMounts = { '/mnt/my-data': volume };
  let sandbox = await Sandbox.create({ volumeMounts, timeoutMs: 300_000 });
  await sandbox.files.write('/mnt/my-data/a.txt', 'kept', { user: 'root' });
  await sandbox.kill();
  sandbox = await Sandbox.create({ volumeMounts, timeoutMs: 300_000 });
  assert.equal(await sandbox.files.read('/mnt/my-data/a.txt'), 'kept');
  assert.equal(await volume.readFile('a.txt'), 'kept');
  await volume.writeFile('a.txt', 'from outside', { force: true });
  assert.equal(await sandbox.files.read('/mnt/my-data/a.txt'), 'from outside');
  await sandbox.commands.run('ln -s /etc/passwd /mnt/my-data/leak', { user: 'root' });
  await assert.rejects(volume.readFile('leak'), /leads out of the volume/);
  await sandbox.kill();
});

test('rules of a sandbox name a secret, whose value nobody reads', async () => {
  const name = `js-${Date.now()}`;
  const secret = await Secret.create(name, 'the-value', { metadata: { team: 'a' } });
  assert.deepEqual([secret.name, secret.version, secret.metadata], [name, 1, { team: 'a' }]);
  assert.ok(secret.createdAt instanceof Date && secret.createdAt.getTime() > Date.now() - 600_000);
  await assert.rejects(Secret.create(name, 'another value'), /already/);
  const rules = { 'api.example.com': [{ transform: { headers: { Authorization: `Bearer ${Secret.fill(name)}` } } }] };
  const sandbox = await Sandbox.create({ timeoutMs: 60_000, network: { rules, allowOut: ({ rules }) => [...rules.keys()], denyOut: ({ allTraffic }) => [allTraffic] } });
  const info = await sandbox.getInfo();
  assert.deepEqual([info.network.rules, info.network.allowOut, info.network.denyOut], [rules, ['api.example.com'], ['0.0.0.0/0']]);
  await sandbox.updateNetwork({ denyOut: ['0.0.0.0/0'] });
  assert.equal((await sandbox.getInfo()).network.rules, undefined);
  await assert.rejects(sandbox.updateNetwork({ rules: { 'a.example': [{ transform: ({ iam }) => ({ headers: { A: iam.tokens.aws } }) }] } }), /unknown placeholder/);
  assert.equal((await Secret.update(name, 'the-next-value')).version, 2);
  assert.equal((await Secret.getInfo(secret.secretId)).version, 2);
  const names = [];
  for (const pages = Secret.list({ limit: 1 }); pages.hasNext; ) names.push(...(await pages.nextItems()).map((s) => s.name));
  assert.ok(names.includes(name));
  assert.deepEqual([await Secret.exists(name), await Secret.destroy(name), await Secret.destroy(name), await Secret.exists(name)], [true, true, false, false]);
  await assert.rejects(Secret.update(name, 'the-value'), SecretNotFoundError);
  await sandbox.kill();
});

test('the files of a volume are used without a sandbox', async () => {
  const volume = await Volume.connect((await Volume.create(`js-files-${Date.now()}`)).volumeId);
  const entry = await volume.writeFile('/a.txt', 'hello');
  assert.deepEqual([entry.name, entry.type, entry.path, entry.size, entry.mode, entry.uid], ['a.txt', 'file', '/a.txt', 5, 0o644, 1000]);
  assert.ok(Math.abs(entry.mtime.getTime() - Date.now()) < 3_600_000);
  assert.equal(await volume.readFile('a.txt'), 'hello');
  assert.equal((await volume.readFile('a.txt', { format: 'bytes' })).length, 5);
  let streamed = '';
  for await (const piece of await volume.readFile('a.txt', { format: 'stream' })) streamed += new TextDecoder().decode(piece);
  assert.equal(streamed, 'hello');
  await assert.rejects(volume.writeFile('a.txt', 'again'), /exists already/);
  await volume.writeFile('deep/er/b', new Blob([new Uint8Array(2 << 20)]), { force: true, mode: 0o600 });
  assert.equal((await volume.getInfo('deep/er/b')).size, 2 << 20);
  assert.equal((await volume.makeDir('d')).type, 'directory');
  assert.deepEqual((await volume.list('/', { depth: 2 })).map((e) => e.path), ['/a.txt', '/d', '/deep', '/deep/er']);
  assert.equal((await volume.updateMetadata('d', { mode: 0o700, uid: 0 })).mode, 0o700);
  await volume.remove('deep');
  assert.deepEqual([await volume.exists('deep'), await volume.exists('d')], [false, true]);
  await assert.rejects(volume.readFile('none'), VolumePathNotFoundError);
  assert.equal(await Volume.destroy(volume.volumeId), true);
  await assert.rejects(volume.readFile('a.txt'), VolumePathNotFoundError);
});
