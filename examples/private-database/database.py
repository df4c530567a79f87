"""A stand-in for a private database: POST /query runs SQL, for those who know the password."""

import base64
import json
import os
import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

LOGIN = "Basic " + base64.b64encode(f"agent:{os.environ['DB_PASSWORD']}".encode()).decode()

database = sqlite3.connect(":memory:")
database.executescript("CREATE TABLE ships (name, built); INSERT INTO ships VALUES ('Aurora', 1912), ('Brise', 1931);")


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        query = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.headers["Authorization"] == LOGIN:
            status, answer = 200, database.execute(query).fetchall()
        else:
            status, answer = 401, "wrong password"
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


host, port = sys.argv[1].rsplit(":", 1)
server = HTTPServer((host, int(port)), Handler)
print("ready", flush=True)
server.serve_forever()
