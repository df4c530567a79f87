# Measures a way to a server: measure.py HOST PORT SECONDS. The server
# answers "GET /small", and "GET /large" without end, and takes "PUT /take". Prints
# milliseconds of a connection with one request (p50, p99), and MB/s down and up.
import socket
import sys
import time

host, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])


def ask(path, method="GET", more=""):
    s = socket.create_connection((host, port), 30)
    s.sendall(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n".encode())
    return s


took = []
end = time.perf_counter() + seconds
while time.perf_counter() < end or len(took) < 20:
    began = time.perf_counter()
    s = ask("/small")
    while s.recv(4096):
        pass
    s.close()
    took.append(time.perf_counter() - began)
took.sort()

buf = bytearray(256 << 10)
s, total, began = ask("/large"), 0, time.perf_counter()
while time.perf_counter() - began < seconds:
    total += s.recv_into(buf)
down = total / (time.perf_counter() - began) / 1e6
s.close()

s, total, began = ask("/take", "PUT", "Transfer-Encoding: chunked\r\n"), 0, time.perf_counter()
chunk = b"40000\r\n" + bytes(0x40000) + b"\r\n"
while time.perf_counter() - began < seconds:
    s.sendall(chunk)
    total += 0x40000
up = total / (time.perf_counter() - began) / 1e6
print(took[len(took) // 2] * 1e3, took[len(took) * 99 // 100] * 1e3, down, up)
