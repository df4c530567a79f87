package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// name is the name of the device.
const name = "berth0"

// mtu is the maximum size of a packet. Packets do not leave the machine, so it is large.
const mtu = 65520

// own are the device's addresses: one reserved for the ends of tunnels (RFC 6333), and a
// random one of the range for private use.
var own = []netip.Addr{netip.MustParseAddr("192.0.0.2"), netip.MustParseAddr("fd62:6572:7468::2")}

// openDevice creates the device and routes all packets to it that have no other route. It
// needs CAP_NET_ADMIN.
func openDevice() (_ *os.File, err error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	req, err := unix.NewIfreq(name)
	if err != nil {
		return nil, os.NewSyscallError("ioctl", err)
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	if err := configure(); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// configure gives the device its addresses, and routes for all others.
func configure() error {
	index, err := interfaceIndex()
	if err != nil {
		return err
	}
	nl, err := netlink()
	if err != nil {
		return err
	}
	defer unix.Close(nl)
	link := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(link[4:], index)
	binary.NativeEndian.PutUint32(link[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(link[12:], unix.IFF_UP)
	if err := ask(nl, unix.RTM_NEWLINK, 0, link); err != nil {
		return fmt.Errorf("device %s: %w", name, err)
	}
	size := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(size[4:], index)
	// Errors are ignored: gVisor uses an MTU of its own.
	_ = ask(nl, unix.RTM_NEWLINK, 0, attribute(size, unix.IFLA_MTU, binary.NativeEndian.AppendUint32(nil, mtu)))
	for _, a := range own {
		if err := addRoute(nl, a, index); err != nil {
			return fmt.Errorf("device %s, %s: %w", name, a, err)
		}
	}
	return nil
}

// addRoute gives the device an address and a route for all addresses of its family.
func addRoute(nl int, a netip.Addr, index uint32) error {
	family := byte(unix.AF_INET)
	if a.Is6() {
		family = unix.AF_INET6
	}
	addr := []byte{family, byte(a.BitLen()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
	addr = binary.NativeEndian.AppendUint32(addr, index)
	addr = attribute(addr, unix.IFA_LOCAL, a.AsSlice())
	addr = attribute(addr, unix.IFA_ADDRESS, a.AsSlice())
	if err := ask(nl, unix.RTM_NEWADDR, unix.NLM_F_CREATE, addr); err != nil {
		return err
	}
	return ask(nl, unix.RTM_NEWROUTE, unix.NLM_F_CREATE, toAll(a, index))
}

// toAll returns the message of the route for all addresses of a's family.
func toAll(a netip.Addr, index uint32) []byte {
	family := byte(unix.AF_INET)
	if a.Is6() {
		family = unix.AF_INET6
	}
	route := make([]byte, unix.SizeofRtMsg)
	route[0], route[4], route[5], route[6], route[7] = family, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT,
		unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST
	route = attribute(route, unix.RTA_DST, make([]byte, a.BitLen()/8))
	return attribute(route, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, index))
}

// removeRoutes lets programs open no more connections through the device. It changes nothing for those that exist.
func removeRoutes() error {
	index, err := interfaceIndex()
	if err != nil {
		return err
	}
	nl, err := netlink()
	if err != nil {
		return err
	}
	defer unix.Close(nl)
	for _, a := range own {
		if err := ask(nl, unix.RTM_DELROUTE, 0, toAll(a, index)); err != nil {
			return fmt.Errorf("device %s, remove the route of %s: %w", name, a, err)
		}
	}
	return nil
}

func netlink() (int, error) {
	nl, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(nl, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(nl)
		return -1, os.NewSyscallError("bind", err)
	}
	return nl, nil
}

func interfaceIndex() (uint32, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0, os.NewSyscallError("ioctl", err)
	}
	err = unix.IoctlIfreq(s, unix.SIOCGIFINDEX, req)
	return req.Uint32(), err
}

// attribute appends an attribute, aligned to four bytes.
func attribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// ask sends a request to the kernel and returns its answer.
func ask(nl int, kind, flags uint16, body []byte) error {
	msg := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	msg = binary.NativeEndian.AppendUint16(msg, kind)
	msg = binary.NativeEndian.AppendUint16(msg, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	msg = append(msg, make([]byte, 8)...) // sequence and sender
	if err := unix.Sendto(nl, append(msg, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	answer := make([]byte, 4<<10)
	n, _, err := unix.Recvfrom(nl, answer, 0)
	if err != nil {
		return os.NewSyscallError("recvfrom", err)
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel's answer is not understood")
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return os.NewSyscallError("netlink", unix.Errno(-code))
	}
	return nil
}
