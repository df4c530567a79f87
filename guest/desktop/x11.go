package desktop

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// Bounds on data accepted from an X server. Any process of the sandbox can be one.
const (
	maxSide  = 4096     // pixels of the display's width and of its height
	maxReply = 72 << 20 // bytes; an image of maxSide × maxSide pixels is smaller
)

// answerTime bounds the time for one answer of an X server.
const answerTime = 10 * time.Second

// A display is a connection to an X server that has the extensions XTEST, DAMAGE and XFIXES.
// It speaks the core protocol in little-endian order (X11R7.7, "X Window System Protocol").
// One goroutine uses it at a time. After an error the connection is unusable.
type display struct {
	conn net.Conn
	in   *bufio.Reader
	seq  uint16 // of the last request

	root          uint32
	width, height int
	idBase        uint32
	minKey        byte // keycodes
	maxKey        byte
	test          byte // major opcodes of the extensions
	damage        byte
	fixes         byte
	damageEvent   byte
	damaged       bool // the screen has changed since rearm

	keys *keyboard // nil before its first use
}

// Opcodes of the core protocol.
const (
	opInternAtom   = 16
	opGetProperty  = 20
	opGetFocus     = 43
	opGetImage     = 73
	opExtension    = 98
	opChangeKeys   = 100
	opKeys         = 101
	zPixmap        = 2
	genericEvent   = 35
	damageID       = 1
	damageNonEmpty = 3
)

var order = binary.LittleEndian

// dial connects to the X server of a display number: to its abstract socket, or else to that
// in the file system.
func dial(number int) (*display, error) {
	path := fmt.Sprintf("/tmp/.X11-unix/X%d", number)
	conn, err := net.DialTimeout("unix", "@"+path, answerTime)
	if err != nil {
		conn, err = net.DialTimeout("unix", path, answerTime)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to display :%d: %w", number, err)
	}
	d := &display{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
	if err := d.open(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("connect to display :%d: %w", number, err)
	}
	return d, nil
}

func (d *display) close() { d.conn.Close() }

// open sets up the connection and its extensions.
func (d *display) open() error {
	d.extend()
	if _, err := d.conn.Write([]byte{'l', 0, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		return err
	}
	var head [8]byte
	if _, err := io.ReadFull(d.in, head[:]); err != nil {
		return err
	}
	body := make([]byte, 4*int(order.Uint16(head[6:])))
	if _, err := io.ReadFull(d.in, body); err != nil {
		return err
	}
	if head[0] != 1 {
		return errors.New("the X server refused the connection")
	}
	if err := d.screen(body); err != nil {
		return err
	}
	for _, ext := range []struct {
		name  string
		major *byte
		event *byte
		query []byte // the request that sets the version, from its minor opcode on
	}{
		{"XTEST", &d.test, nil, nil},
		{"DAMAGE", &d.damage, &d.damageEvent, []byte{0, 3, 0, 1, 0, 0, 0, 1, 0, 0, 0}},
		{"XFIXES", &d.fixes, nil, []byte{0, 3, 0, 5, 0, 0, 0, 0, 0, 0, 0}},
	} {
		reply, err := d.ask(request(opExtension, 0, u16(len(ext.name)), u16(0), padded(ext.name)), 0)
		if err != nil {
			return err
		}
		if reply[8] == 0 {
			return fmt.Errorf("the X server lacks the extension %s", ext.name)
		}
		*ext.major = reply[9]
		if ext.event != nil {
			*ext.event = reply[10]
		}
		if ext.query != nil {
			if _, err := d.ask(append([]byte{*ext.major}, ext.query...), 0); err != nil {
				return err
			}
		}
	}
	return d.send(request(d.damage, 1, u32(d.idBase|damageID), u32(d.root), []byte{damageNonEmpty, 0, 0, 0}))
}

// screen reads the first screen from the server's description of itself.
func (d *display) screen(b []byte) error {
	short := errors.New("the X server sent an invalid description")
	if len(b) < 32 {
		return short
	}
	d.idBase, d.minKey, d.maxKey = order.Uint32(b[4:]), b[26], b[27]
	at := 32 + (int(order.Uint16(b[16:]))+3)/4*4 + 8*int(b[21])
	if b[20] == 0 || len(b) < at+40 || b[22] != 0 || d.minKey < 8 || d.maxKey < d.minKey {
		return short
	}
	s := b[at:]
	d.root, d.width, d.height = order.Uint32(s), int(order.Uint16(s[20:])), int(order.Uint16(s[22:]))
	if depth := s[38]; depth != 24 && depth != 32 {
		return fmt.Errorf("the display has a depth of %d bits; 24 are needed", depth)
	}
	if d.width < 1 || d.height < 1 || d.width > maxSide || d.height > maxSide {
		return fmt.Errorf("the display has %d × %d pixels; %d × %d are allowed", d.width, d.height, maxSide, maxSide)
	}
	return nil
}

// request returns a request with its length.
func request(opcode, data byte, parts ...[]byte) []byte {
	b := []byte{opcode, data, 0, 0}
	for _, p := range parts {
		b = append(b, p...)
	}
	order.PutUint16(b[2:], uint16(len(b)/4))
	return b
}

func u16(n int) []byte    { return order.AppendUint16(nil, uint16(n)) }
func u32(n uint32) []byte { return order.AppendUint32(nil, n) }

// padded returns a text with zeros up to a multiple of 4 bytes.
func padded(s string) []byte { return append([]byte(s), make([]byte, -len(s)&3)...) }

// extend moves the deadline of the connection.
func (d *display) extend() { _ = d.conn.SetDeadline(time.Now().Add(answerTime)) }

// send sends a request that has no reply.
func (d *display) send(b []byte) error {
	d.extend()
	d.seq++
	_, err := d.conn.Write(b)
	return err
}

// ask sends a request and returns its reply of at most limit bytes beyond the first 32.
func (d *display) ask(b []byte, limit int) ([]byte, error) {
	if err := d.send(b); err != nil {
		return nil, err
	}
	for {
		m, err := d.receive(d.seq, limit)
		if err != nil || m != nil {
			return m, err
		}
	}
}

// sync returns when the server has carried out all requests.
func (d *display) sync() error {
	_, err := d.ask(request(opGetFocus, 0), 0)
	return err
}

// receive reads one message. It returns a reply with the number seq, and nil for events and
// for errors of requests without a reply.
func (d *display) receive(seq uint16, limit int) ([]byte, error) {
	head, err := d.in.Peek(32)
	if err != nil {
		return nil, err
	}
	kind, number := head[0], order.Uint16(head[2:])
	more := 0
	if kind == 1 || kind&0x7f == genericEvent {
		if n := order.Uint32(head[4:]); n > maxReply/4 {
			return nil, fmt.Errorf("the X server sent an answer of %d words", n)
		} else {
			more = 4 * int(n)
		}
	}
	switch {
	case kind == 0 && number == seq:
		return nil, fmt.Errorf("the X server refused a request with error %d", head[1])
	case kind == 1 && number == seq:
		if more > limit {
			return nil, fmt.Errorf("the X server sent an answer of %d bytes; %d are allowed", more, limit)
		}
		b := make([]byte, 32+more)
		_, err := io.ReadFull(d.in, b)
		return b, err
	case kind&0x7f == d.damageEvent && d.damageEvent != 0:
		d.damaged = true
	}
	_, err = d.in.Discard(32 + more)
	return nil, err
}

// awaitDamage waits until the screen changes, at most for the duration wait, and reports
// whether it has.
func (d *display) awaitDamage(wait time.Duration) (bool, error) {
	until := time.Now().Add(wait)
	for !d.damaged {
		if err := d.conn.SetReadDeadline(until); err != nil {
			return false, err
		}
		_, err := d.receive(d.seq+1, 0) // no request has this number yet
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// rearm makes the next change of the screen count.
func (d *display) rearm() error {
	d.damaged = false
	return d.send(request(d.damage, 3, u32(d.idBase|damageID), u32(0), u32(0)))
}

// image returns the pixels of the screen: for each pixel blue, green, red and a byte that
// means nothing.
func (d *display) image() ([]byte, error) {
	size := 4 * d.width * d.height
	reply, err := d.ask(request(opGetImage, zPixmap, u32(d.root), u16(0), u16(0), u16(d.width), u16(d.height),
		u32(0xffffffff)), size)
	if err != nil {
		return nil, err
	}
	if len(reply) != 32+size {
		return nil, fmt.Errorf("the X server sent an image of %d bytes, not of %d", len(reply)-32, size)
	}
	return reply[32:], nil
}

// fake makes an input event.
func (d *display) fake(kind, detail byte, x, y int) error {
	return d.send(request(d.test, 2, []byte{kind, detail, 0, 0}, u32(0), u32(d.root), u32(0), u32(0), u16(x), u16(y),
		u32(0), u32(0)))
}

// The kinds of events that fake makes.
const (
	keyPress      = 2
	keyRelease    = 3
	buttonPress   = 4
	buttonRelease = 5
	motion        = 6
)

// managed reports whether a window manager runs.
func (d *display) managed() (bool, error) {
	const name = "_NET_SUPPORTING_WM_CHECK"
	reply, err := d.ask(request(opInternAtom, 0, u16(len(name)), u16(0), padded(name)), 0)
	if err != nil {
		return false, err
	}
	reply, err = d.ask(request(opGetProperty, 0, u32(d.root), reply[8:12], u32(0), u32(0), u32(1)), 4)
	if err != nil {
		return false, err
	}
	return order.Uint32(reply[8:]) != 0, nil // the type of the property; 0 if there is none
}

// drawPointer draws the pointer into pixels of the screen.
func (d *display) drawPointer(pixels []byte) error {
	reply, err := d.ask(request(d.fixes, 4), 4*256*256)
	if err != nil {
		return err
	}
	w, h := int(order.Uint16(reply[12:])), int(order.Uint16(reply[14:]))
	left := int(int16(order.Uint16(reply[8:]))) - int(order.Uint16(reply[16:]))
	top := int(int16(order.Uint16(reply[10:]))) - int(order.Uint16(reply[18:]))
	if len(reply) < 32+4*w*h {
		return errors.New("the X server sent an invalid pointer")
	}
	for y := range h {
		for x := range w {
			if left+x < 0 || left+x >= d.width || top+y < 0 || top+y >= d.height {
				continue
			}
			from, to := reply[32+4*(y*w+x):], pixels[4*((top+y)*d.width+left+x):]
			clear := 255 - int(from[3])
			for i := range 3 { // its colours are multiplied by its opacity
				to[i] = byte(min(255, int(from[i])+int(to[i])*clear/255))
			}
		}
	}
	return nil
}
