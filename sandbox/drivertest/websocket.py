# Opens a WebSocket to a host and path, says hi, and prints the answer; or the status
# if there is no WebSocket.
import os
import socket
import ssl
import sys

host, path = sys.argv[1:]
s = ssl.create_default_context().wrap_socket(socket.create_connection((host, 443), 20), server_hostname=host)
s.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
f = s.makefile("rb")
status = f.readline().decode().strip()
while f.readline().strip():
    pass
if " 101 " not in status:
    sys.exit(print(status))
mask = os.urandom(4)
s.sendall(b"\x81\x82" + mask + bytes(c ^ mask[i] for i, c in enumerate(b"hi")))
size = f.read(2)[1]
print(f.read(size).decode())
