# Sends what strays from a policy, and prints what comes of it.
import errno
import fcntl
import os
import socket
import struct
import sys
import time

what = sys.argv[1]


def family(a):
    return socket.AF_INET6 if ":" in a else socket.AF_INET


def udp(a, port, data, timeout=2.0):
    s = socket.socket(family(a), socket.SOCK_DGRAM)
    s.settimeout(timeout)
    s.sendto(data, (a, port))
    return s.recv(65536)


# again asks from the same port again and again; the host closes first, or this side
# resets the connection.
def again(a, times, reset):
    answers = 0
    for _ in range(times):
        s = socket.socket(family(a), socket.SOCK_STREAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.settimeout(10)
        s.bind(("", 40000))
        while (code := s.connect_ex((a, 80))) == errno.EADDRNOTAVAIL:
            time.sleep(0.001)  # the one before is about to end on this side
        if code:
            raise OSError(code, "connect")
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while s.recv(4096) and not reset:
            pass
        if reset:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
        answers += 1
    return answers


def tries():
    refused = ["10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254", "169.254.170.2", "100.100.100.200",
               "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fe80::1", "fd12::1", "2001:db8::2", "64:ff9b::a00:1",
               "2002:a00:1::", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:127.0.0.1", "0.0.0.0", "::", "192.0.0.3",
               "224.0.0.1", "255.255.255.255", "240.0.0.1", "198.18.0.1", "203.0.113.9"]
    for a in refused:
        for port in (22, 80, 443):
            s = socket.socket(family(a), socket.SOCK_STREAM)
            s.settimeout(0.4)
            try:
                s.connect((a, port))
                s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                if s.recv(64):
                    print("tcp", a, port)
            except OSError:
                pass
            s.close()
    # Allowed addresses, but not at that port, or not by that protocol.
    for a, port in (("198.51.100.7", 22), ("198.51.100.7", 53), ("93.184.216.34", 22), ("2001:db8::1", 22)):
        s = socket.socket(family(a), socket.SOCK_STREAM)
        s.settimeout(0.4)
        try:
            s.connect((a, port))
            if s.recv(64):
                print("tcp", a, port)
        except OSError:
            pass
        s.close()
    for a, port in (("198.51.100.7", 443), ("198.51.100.8", 5353), ("93.184.216.34", 443), ("8.8.8.8", 53), ("2001:db8::1", 443),
                    ("169.254.169.254", 80), ("10.0.0.1", 53), ("255.255.255.255", 67)):
        try:
            udp(a, port, b"x", 0.2)
            print("udp", a, port)
        except OSError:
            pass
    for a in ("198.51.100.7", "8.8.8.8", "2001:db8::1"):
        for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM):
            try:
                s = socket.socket(family(a), kind, socket.IPPROTO_ICMPV6 if ":" in a else socket.IPPROTO_ICMP)
                s.settimeout(0.2)
                s.sendto((b"\x80" if ":" in a else b"\x08") + b"\x00\xf7\xff\x00\x00\x00\x00", (a, 0))
                s.recvfrom(512)
                print("icmp", a)
            except OSError:
                pass
    print("done")


def refused(f):
    try:
        f()
        print("done")
    except OSError as e:
        print("refused" if e.errno in (errno.EPERM, errno.EACCES, errno.EBUSY, errno.ENOENT, errno.ESRCH, errno.ENOTTY) else e)


def tun():
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", b"stray0", 0x1001))


def address():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    body = struct.pack("BBBBI", 2, 32, 0, 0, 1) + struct.pack("HH4s", 8, 2, socket.inet_aton("198.51.100.7"))
    s.send(struct.pack("IHHII", 16 + len(body), 20, 0x405, 1, 0) + body)
    code = struct.unpack("i", s.recv(4096)[16:20])[0]
    if code:
        raise OSError(-code, "netlink")


def memory():
    fd = os.open("/proc/1/mem", os.O_RDWR)  # as a tracer would
    for line in open("/proc/1/maps"):
        os.lseek(fd, int(line.split("-")[0], 16), 0)
        os.write(fd, b"x")


if what == "udp":
    print(udp(sys.argv[2], int(sys.argv[3]), sys.argv[4].encode()).decode())
elif what == "again":
    print(again(sys.argv[2], int(sys.argv[3]), "reset" in sys.argv))
elif what == "all":
    tries()
elif what == "flood":
    held = []
    for i in range(10000):
        s = socket.socket()
        s.setblocking(False)
        try:
            s.connect_ex(("198.51.100.7" if i % 4 == 0 else "10.0.%d.%d" % (i >> 8 & 255, i & 255), 80))
        except OSError:
            pass
        held.append(s)
        if len(held) > 900:
            held.pop(0).close()
    print("stopped")
else:
    refused({"tun": tun, "address": address, "memory": memory}[what])
