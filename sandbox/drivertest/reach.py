# Connects to whatever might listen outside of a sandbox and prints what it reaches.
# Arguments: a TCP port of the host, a socket's path and abstract name there, and
# addresses. With ANSWERS in the environment, a datagram counts only if it is
# answered: a network card sends it, whatever becomes of it.
import os
import socket
import sys

port, path, abstract, *hosts = sys.argv[1:]


def attempt(family, kind, address):
    with socket.socket(family, kind) as s:
        s.settimeout(3)
        try:
            s.connect(address)
            s.send(b"x")
            if kind == socket.SOCK_DGRAM and "ANSWERS" in os.environ:
                s.settimeout(0.5)
                s.recv(512)
            print("reached", address)
        except OSError:
            pass


for host in hosts:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for p in (22, 53, 80, int(port)):
        attempt(family, socket.SOCK_STREAM, (host, p))
    # A datagram to one's own loopback is always sent.
    if not host.startswith(("127.", "0.", "::1")):
        attempt(family, socket.SOCK_DGRAM, (host, 53))

for name in (
    path,
    "\0" + abstract,
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
):
    attempt(socket.AF_UNIX, socket.SOCK_STREAM, name)
print("done")
