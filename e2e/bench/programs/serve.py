# Serves HTTP on a port of the loopback: serve.py PORT. "GET /small" is answered with
# a few bytes, "GET /large" with 256 MB; "PUT" is read to its end. Prints its port when
# it listens.
import http.server
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self):
        size = 256 * 1000 * 1000 if self.path == "/large" else 5
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        chunk = bytes(min(size, 256 * 1000))
        for _ in range(size // len(chunk)):
            self.wfile.write(chunk)
        self.wfile.flush()

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print(server.server_port, flush=True)
server.serve_forever()
