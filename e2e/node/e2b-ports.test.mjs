import assert from 'node:assert/strict';
import http from 'node:http';
import { test } from 'node:test';
import { Sandbox } from 'e2b';
import { WebSocket } from 'ws';

const url = process.env.E2B_API_URL;

// request sends a request to a port of a sandbox by its host name, which this machine need not resolve.
function request(host, headers = {}) {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    http.get({ hostname, port, path: '/a?b', headers: { host, ...headers } }, async (res) => {
      let body = '';
      for await (const piece of res) body += piece;
      resolve({ status: res.statusCode, body });
    }).on('error', reject);
  });
}

// serve starts a server in a sandbox that answers with the path.
const program = `
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(self.path.encode())
http.server.ThreadingHTTPServer(("127.0.0.1", 3000), Handler).serve_forever()
`;

async function serve(sandbox) {
  await sandbox.files.write('/tmp/serve.py', program);
  await sandbox.commands.run('python3 /tmp/serve.py', { background: true, timeoutMs: 0 });
}

// until polls until a request is answered with a status.
async function until(status, send) {
  for (const end = Date.now() + 60_000; ; ) {
    const answer = await send();
    if (answer.status === status || Date.now() > end) return answer;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

test('a port by its host name', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 120_000 });
  const host = sandbox.getHost(3000);
  assert.match(host, new RegExp('^3000-' + sandbox.sandboxId + '\\.'));
  const closed = await request(host);
  assert.deepEqual([closed.status, JSON.parse(closed.body).message], [502, 'The sandbox is running but port is not open']);
  await serve(sandbox);
  assert.deepEqual(await until(200, () => request(host)), { status: 200, body: '/a?b' });
  await sandbox.kill();
  assert.equal((await request(host)).status, 502);
});

test('a port by headers, with a traffic token', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 120_000, network: { allowPublicTraffic: false } });
  await serve(sandbox);
  const to = { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '3000' };
  const token = { 'e2b-traffic-access-token': sandbox.trafficAccessToken };
  const answer = await until(200, () => fetch(url + '/a', { headers: { ...to, ...token } }));
  assert.deepEqual([answer.status, await answer.text()], [200, '/a']);
  for (const wrong of [{}, { 'e2b-traffic-access-token': sandbox.trafficAccessToken.slice(1) + 'x' }]) {
    assert.equal((await fetch(url + '/a', { headers: { ...to, ...wrong } })).status, 403);
  }
  await sandbox.kill();
});

test('a WebSocket to a port', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 120_000 });
  const upgrade = `
import base64, hashlib, socketserver
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        key = ""
        while (line := self.rfile.readline().decode().strip()):
            if line.lower().startswith("sec-websocket-key:"): key = line.split(":", 1)[1].strip()
        accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
        self.wfile.write(("HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: " + accept + "\\r\\n\\r\\n").encode())
        self.wfile.write(b"\\x81\\x05hello")
        self.rfile.read(1)
socketserver.TCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("127.0.0.1", 4000), Handler).serve_forever()
`;
  await sandbox.files.write('/tmp/ws.py', upgrade);
  await sandbox.commands.run('python3 /tmp/ws.py', { background: true, timeoutMs: 0 });
  const headers = { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '4000' };
  await until(101, async () => {
    const socket = new WebSocket(url.replace('http', 'ws') + '/socket', { headers });
    const seen = await new Promise((resolve) => {
      socket.on('message', (data) => resolve(data.toString()));
      socket.on('error', () => resolve(''));
    });
    socket.terminate();
    return { status: seen === 'hello' ? 101 : 0 };
  }).then((answer) => assert.equal(answer.status, 101));
  await sandbox.kill();
});
