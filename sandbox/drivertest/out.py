# Tries to reach addresses by every protocol that needs no name. Prints what it
# reaches, then "done".
import socket
import sys

addresses = sys.argv[1:] + ["1.1.1.1", "8.8.8.8", "169.254.169.254", "10.0.0.1", "2606:4700:4700::1111", "fd00:ec2::254"]


def family(a):
    return socket.AF_INET6 if ":" in a else socket.AF_INET


for a in addresses:
    for port in (22, 53, 80, 443):
        s = socket.socket(family(a), socket.SOCK_STREAM)
        s.settimeout(1)
        try:
            s.connect((a, port))
            print("tcp", a, port)
        except OSError:
            pass
        s.close()
    s = socket.socket(family(a), socket.SOCK_DGRAM)
    s.settimeout(0.2)
    try:
        s.sendto(b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04evil\x03com\x00\x00\x01\x00\x01", (a, 53))
        s.recvfrom(512)
        print("udp", a)
    except OSError:
        pass
    s.close()
    for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM):
        try:
            s = socket.socket(family(a), kind, socket.IPPROTO_ICMPV6 if ":" in a else socket.IPPROTO_ICMP)
            s.settimeout(0.2)
            s.sendto(b"\x08\x00\xf7\xff\x00\x00\x00\x00", (a, 0))
            s.recvfrom(512)
            print("icmp", a)
        except OSError:
            pass
print("done")
