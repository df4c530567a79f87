# A sandbox whose desktop attacks who looks at it: the page of the desktop on port 6081, with a VNC server behind it that
# lies in the way that the first part of the path names, and pages that attack by themselves.
import base64, hashlib, http.server, pathlib, struct, sys

SHARED = pathlib.Path("/usr/share/berth-desktop")
MARKUP = b"<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def size(width, height, name=b"desk", length=None):
    form = struct.pack(">BBBBHHHBBBxxx", 32, 24, 0, 1, 255, 255, 255, 16, 8, 0)
    return struct.pack(">HH", width, height) + form + struct.pack(">I", len(name) if length is None else length) + name


def update(*rectangles):
    return struct.pack(">BxH", 0, len(rectangles)) + b"".join(
        struct.pack(">HHHHi", *place, encoding) + data for place, encoding, data in rectangles)


def text(length, data=b""):
    return struct.pack(">BxxxI", 3, length) + data


# What the server sends after the handshake, and what it then repeats.
LIES = {
    "screen": (size(65535, 65535), update(((65534, 65534, 1, 1), 0, b"\1\2\3\4"))),
    "name": (size(16, 16, length=0xFFFFFFFF), b"n" * 65536),
    "markup": (size(16, 16, MARKUP) + text(len(MARKUP), MARKUP), b"\2"),
    "clipboard": (size(16, 16), text(6, b"stolen")),
    "text": (size(16, 16) + text(0x7FFFFFFF), b"t" * 65536),
    "resize": (size(16, 16), update(((65535, 65535, 65535, 65535), -223, b""))),
    "beyond": (size(16, 16), update(((60000, 60000, 4000, 1), 0, b"\1\2\3\4" * 4000))),
    "cursor": (size(16, 16), update(((0, 0, 65535, 65535), -239, b"")) + b"c" * 65536),
    "count": (size(16, 16) + struct.pack(">BxH", 0, 65535), struct.pack(">HHHHi", 0, 0, 0, 0, 0) * 4096),
    "unknown": (size(16, 16), update(((0, 0, 1, 1), 0x7FFFFFF0, b"")) + b"\xfa" * 65536),
    "bells": (size(16, 16), b"\2" * 65536),
    "endless": (size(16, 16), b"\2" * 65536),
}


class Screen(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def translate_path(self, path):
        _, mode, rest = self.path.split("?")[0].split("/", 2)
        return str(pathlib.Path("attack.html") if mode == "page" else SHARED / (rest or "index.html"))

    def log_message(self, *_):
        pass

    def do_GET(self):
        if not self.path.endswith("/websockify"):
            return super().do_GET()
        key = self.headers["Sec-WebSocket-Key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"),
                            ("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key).digest()).decode())):
            self.send_header(name, value)
        if "Sec-WebSocket-Protocol" in self.headers:
            self.send_header("Sec-WebSocket-Protocol", "binary")
        self.end_headers()
        self.close_connection = True
        first, again = LIES[self.path.split("/")[1]]
        sent = 0
        try:
            self.frame(b"RFB 003.008\n")
            self.take(12)
            self.frame(b"\1\1")  # one kind of security: none
            self.take(1)
            self.frame(struct.pack(">I", 0))
            self.take(1)
            self.frame(first)
            self.connection.settimeout(3)
            for _ in range(1 << 14 if self.path.startswith("/endless/") else 1 << 10):
                self.frame(again)
                sent += len(again)
            end = "complete"
        except TimeoutError:
            end = "stalled"
        except OSError:
            end = "closed"
        with open("ends", "a") as log:
            print(self.path.split("/")[1], end, sent, file=log)

    def frame(self, data):
        head = b"\x82" + (bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack(">H", len(data))
                          if len(data) < 65536 else b"\x7f" + struct.pack(">Q", len(data)))
        self.wfile.write(head + data)
        self.wfile.flush()

    def take(self, n):
        """Reads n bytes of messages, each in one small frame."""
        while n > 0:
            _, length = self.rfile.read(2)
            self.rfile.read(4 + (length & 127))
            n -= length & 127


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Screen).serve_forever()
