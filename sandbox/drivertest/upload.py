# Uploads to hosts that are refused once the connection stands, or cannot be reached.
# Prints what does not fail at once, then "done".
import socket
import ssl
import time


def hello(name):
    out = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


post = b"POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000000000\r\n\r\n"
for what, host, port, first in (
    ("no listener", "dead.example.com", 5433, b"\0"),
    ("no listener, TLS", "dead.example.com", 443, hello("dead.example.com")),
    ("no listener, HTTP", "dead.example.com", 80, post % b"dead.example.com"),
    ("inside, TLS", "inside.example.com", 443, hello("inside.example.com")),
    ("inside, HTTP", "inside.example.com", 80, post % b"inside.example.com"),
    ("another name, TLS", "example.com", 443, hello("evil.com")),
    ("another name, HTTP", "example.com", 80, post % b"evil.com"),
    ("not TLS", "example.com", 443, b"\0"),
    ("not HTTP", "example.com", 80, b"\0"),
    ("HTTP after the host spoke", "db.example.com", 5432, None),
):
    began, sent = time.time(), 0
    try:
        s = socket.create_connection((host, port), 10)
        s.settimeout(10)
        if first is None:
            s.recv(6)
            first = post % b"db.example.com"
        s.sendall(first)
        while sent < 64 << 20:
            sent += s.send(b"x" * 65536)
        print(what, "took everything")
    except socket.timeout:
        print(what, "timed out after", sent)
    except OSError:
        if time.time() - began > 5:
            print(what, "took", time.time() - began)
print("done")
