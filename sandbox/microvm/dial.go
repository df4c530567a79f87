package microvm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/guest/serial"
)

// errBusy is returned by Dial when all of a sandbox's serial ports are in use.
var errBusy = fmt.Errorf("its %d connections are in use", ports)

// Dial connects to the guest through an unused serial port. As with a socket, the guest may
// accept the connection after Dial returns.
func (d *Driver) Dial(ctx context.Context, id string) (net.Conn, error) {
	s, err := d.base.Find(id)
	if err != nil {
		return nil, err
	}
	// A caller that lost its connection may have lost it because the machine was stopped. Whether
	// the guest answers shows what became of it.
	_ = s.unstop(ctx)
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("microvm: dial %s: %w", id, err)
	}
	return conn, nil
}

func portName(i int) string { return "port" + strconv.Itoa(i) }

// A conn is a connection through a port, which Close releases.
type conn struct {
	*serial.Conn

	lock *os.File
}

// Close implements net.Conn.
func (c conn) Close() error { return errors.Join(c.Conn.Close(), c.lock.Close()) }

// dial connects to the first free port. A lock on a file marks a port as used: it ends with its
// holder, however that ends.
func (s instance) dial(ctx context.Context) (conn, error) {
	for i := range ports {
		lock, err := os.OpenFile(s.path("run/"+portName(i)+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return conn{}, err
		}
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			lock.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				continue
			}
			return conn{}, os.NewSyscallError("flock", err)
		}
		c, err := s.dialPort(ctx, portName(i))
		if err != nil {
			lock.Close()
			return conn{}, err
		}
		return conn{c, lock}, nil
	}
	return conn{}, errBusy
}

func (s instance) dialPort(ctx context.Context, name string) (*serial.Conn, error) {
	line, err := s.connect(ctx, name)
	if err != nil {
		return nil, err
	}
	c, err := serial.Dial(line)
	if err != nil {
		line.Close()
	}
	return c, err
}
