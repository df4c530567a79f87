package forward

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/clock"
)

// Syslog sends messages of RFC 5424 over TLS, framed as RFC 5425 says.
type Syslog struct {
	Address string // HOST:PORT
	TLS     *tls.Config
	Format  Format
	Host    string // name of this machine
	Clock   clock.Clock

	// Dial connects; nil means that the connection is direct.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	conn *tls.Conn
	over chan struct{}  // closed when the collector has ended conn
	last []*audit.Entry // that were sent last over conn
	lost []*audit.Entry // of a connection that broke: the collector may not have read them
}

// The priority of messages: facility 13 is the audit log; 6 is informational and 5 a notice.
const (
	priority       = 13*8 + 6
	priorityNotice = 13*8 + 5
)

// Send writes messages, and waits until the collector's machine has received them. Syslog has no answer: a collector
// that ends with messages unread loses them unseen, so those that were sent last over a broken connection are repeated.
func (s *Syslog) Send(ctx context.Context, entries []*audit.Entry) (err error) {
	defer func() {
		if err != nil {
			s.lost = s.last
			s.hangUp()
		}
	}()
	if s.conn != nil && s.ended() {
		s.lost = s.last
		s.hangUp()
	}
	if s.conn == nil {
		if err := s.dial(ctx); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = s.conn.NetConn().Close() })
	defer stop()
	var frames []byte
	for _, e := range append(s.lost[:len(s.lost):len(s.lost)], entries...) {
		message, err := s.message(e)
		if err != nil {
			return err
		}
		frames = append(strconv.AppendInt(frames, int64(len(message)), 10), ' ')
		frames = append(frames, message...)
	}
	if _, err := s.conn.Write(frames); err != nil {
		return fmt.Errorf("write to the syslog collector: %w", err)
	}
	if err := s.received(ctx); err != nil {
		return err
	}
	s.last, s.lost = entries, nil
	return nil
}

// Close ends the connection.
func (s *Syslog) Close() error {
	s.hangUp()
	return nil
}

func (s *Syslog) hangUp() {
	if s.conn != nil {
		s.conn.Close()
	}
	s.conn, s.last = nil, nil
}

func (s *Syslog) dial(ctx context.Context) error {
	dial := s.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	raw, err := dial(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("connect to the syslog collector: %w", err)
	}
	config := s.TLS.Clone()
	if config.ServerName == "" {
		if config.ServerName, _, err = net.SplitHostPort(s.Address); err != nil {
			raw.Close()
			return fmt.Errorf("address of the syslog collector: %w", err)
		}
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return fmt.Errorf("TLS with the syslog collector: %w", err)
	}
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, conn) // a collector sends nothing but records of TLS
		close(over)
	}()
	s.conn, s.over = conn, over
	return nil
}

// ended reports whether the collector has ended the connection.
func (s *Syslog) ended() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// received waits until the collector's machine has acknowledged all bytes.
func (s *Syslog) received(ctx context.Context) error {
	for {
		if s.unacknowledged() == 0 {
			return nil
		}
		select {
		case <-s.Clock.After(5 * time.Millisecond):
		case <-s.over:
			return fmt.Errorf("the syslog collector has closed the connection: %w", net.ErrClosed)
		case <-ctx.Done():
			return fmt.Errorf("the syslog collector does not take what it is sent: %w", context.Cause(ctx))
		}
	}
}

// unacknowledged returns how many bytes the other machine has not acknowledged, or 0 if the connection cannot tell.
func (s *Syslog) unacknowledged() (n int) {
	c, ok := s.conn.NetConn().(*net.TCPConn)
	if !ok {
		return 0
	}
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	}
	if err != nil {
		return 0
	}
	return n
}

// message returns an entry as a message. Its id is the action, and its number is that of the entry.
func (s *Syslog) message(e *audit.Entry) ([]byte, error) {
	content, err := s.Format.encode(e)
	if err != nil {
		return nil, err
	}
	p := priority
	if refused(e) {
		p = priorityNotice
	}
	// sequenceId has 31 bits and begins with 1.
	return fmt.Appendf(nil, "<%d>1 %s %s berth %d %s [meta sequenceId=\"%d\"] %s", p,
		e.Time.UTC().Format("2006-01-02T15:04:05.000000Z"), printable(s.Host, 255), os.Getpid(),
		printable(string(e.Action), 32), e.Seq%(1<<31-1)+1, content), nil
}

// printable returns a name as headers have it: printable ASCII without spaces, and "-" if nothing is left.
func printable(name string, most int) string {
	name = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, name)
	if name == "" {
		return "-"
	}
	return name[:min(len(name), most)]
}
