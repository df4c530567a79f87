# Measures a way to a server: out.py HOST PORT UDPHOST UDPPORT SECONDS; a host of "-"
# is left out. The server answers "GET /small", "GET /large" without end, and takes
# "PUT /take"; the one of datagrams sends back what it gets. Prints JSON: milliseconds
# of each connection with one request, MB/s down and up, milliseconds of each datagram
# and its answer.
import json
import socket
import sys
import time

host, port, udp, udp_port, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5])


def ask(path, method="GET", more=""):
    s = socket.create_connection((host, port), 30)
    s.sendall(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n".encode())
    return s


def small():
    s, answer = ask("/small"), b""
    while got := s.recv(4096):
        answer += got
    s.close()
    if not answer.endswith(b"hello"):
        sys.exit(f"got {answer!r}")


def down():
    buf, s, total, began = bytearray(256 << 10), ask("/large"), 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        total += s.recv_into(buf)
    s.close()
    return total / (time.perf_counter() - began) / 1e6


def up():
    s, total, began = ask("/take", "PUT", "Transfer-Encoding: chunked\r\n"), 0, time.perf_counter()
    chunk = b"40000\r\n" + bytes(0x40000) + b"\r\n"
    while time.perf_counter() - began < seconds:
        s.sendall(chunk)
        total += 0x40000
    s.close()
    return total / (time.perf_counter() - began) / 1e6


def each(f):
    took, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(took) < 20:
        began = time.perf_counter()
        f()
        took.append((time.perf_counter() - began) * 1e3)
    return took


out = {}
if host != "-":
    small()
    out = {"connect": each(small), "down": [down()], "up": [up()]}
if udp != "-":
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(10)
    s.connect((udp, udp_port))

    def echo():
        s.send(b"there")
        s.recv(100)

    echo()
    out["datagram"] = each(echo)
print(json.dumps(out))
