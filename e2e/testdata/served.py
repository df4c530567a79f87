# A server in a sandbox: pages and large files on port 8000, a WebSocket that
# echoes on 8001, both in nothing but the standard library.
import base64, hashlib, http.server, socketserver, struct, threading


class Pages(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/large":
            self.send_response(200)
            self.send_header("Content-Length", str(64 << 20))
            self.end_headers()
            for _ in range(64):
                self.wfile.write(b"x" * (1 << 20))
            return
        super().do_GET()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = hashlib.sha256(body).hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        key = b""
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"sec-websocket-key":
                key = value.strip()
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        while True:  # small text messages in one frame each
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] != 0x81:
                return
            size = head[1] & 0x7F
            mask, data = self.rfile.read(4), self.rfile.read(size)
            self.wfile.write(struct.pack("BB", 0x81, size) + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))


def serve(port, handler):
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", port), handler) as server:
        server.serve_forever()


threading.Thread(target=serve, args=(8001, Echo), daemon=True).start()
serve(8000, Pages)
