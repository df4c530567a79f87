package sign

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

const (
	// maxChunk bounds a chunk, which is held in memory: its signature is sent before its data.
	maxChunk = 1 << 20
	maxLine  = 1 << 10
	maxLines = 16 // of a trailer

	chunkField   = "chunk-signature="
	trailerField = "x-amz-trailer-signature"
)

// ErrChunks is wrapped by the errors of a body whose chunks cannot be signed anew.
var ErrChunks = errors.New("the chunks of the body")

// chunks replaces the signatures in a body. Each covers the one before it. The length of the body stays the same.
type chunks struct {
	in      *bufio.Reader
	body    io.Closer
	key     []byte
	date    string
	scope   string
	last    string // signature
	trailer bool

	ready []byte
	data  []byte
	err   error
}

func (k *Key) newChunks(body io.ReadCloser, c *Claim, now time.Time, seed string, trailer bool) *chunks {
	day := now.Format("20060102")
	return &chunks{in: bufio.NewReaderSize(body, maxLine), body: body, key: k.signingKey(day, c),
		date: now.Format(timeFormat), scope: day + "/" + c.Region + "/" + c.Service + "/aws4_request", last: seed,
		trailer: trailer}
}

// Read implements io.Reader.
func (c *chunks) Read(p []byte) (int, error) {
	for len(c.ready) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		c.err = c.next()
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// Close implements io.Closer.
func (c *chunks) Close() error { return c.body.Close() }

// next reads a chunk. It returns io.EOF after the last one.
func (c *chunks) next() error {
	head, err := c.line()
	if err != nil {
		return err
	}
	digits, rest, _ := strings.Cut(head, ";")
	size, err := strconv.ParseUint(digits, 16, 32)
	if signature, ok := strings.CutPrefix(rest, chunkField); err != nil || !ok || !isHash(signature) {
		return fmt.Errorf("%w are not signed", ErrChunks)
	}
	if size > maxChunk {
		return fmt.Errorf("%w are larger than %d bytes", ErrChunks, maxChunk)
	}
	if err := c.read(int(size)); err != nil {
		return err
	}
	hash := sha256.Sum256(c.data)
	c.sign("AWS4-HMAC-SHA256-PAYLOAD", emptyHash, hex.EncodeToString(hash[:]))
	c.ready = append(c.ready[:0], digits+";"+chunkField+c.last+"\r\n"...)
	if size > 0 {
		c.ready = append(append(c.ready, c.data...), "\r\n"...)
		return c.end()
	}
	if c.trailer {
		return c.readTrailer()
	}
	c.ready = append(c.ready, "\r\n"...)
	if err := c.end(); err != nil {
		return err
	}
	return c.over()
}

// read reads the data of a chunk. What is held grows with what has arrived.
func (c *chunks) read(size int) error {
	c.data = c.data[:0]
	for len(c.data) < size {
		n := min(size-len(c.data), 64<<10)
		from := len(c.data)
		c.data = append(c.data, make([]byte, n)...)
		if _, err := io.ReadFull(c.in, c.data[from:]); err != nil {
			return cut(err)
		}
	}
	return nil
}

// readTrailer reads the fields after the last chunk and signs them. Clients end their lines in several ways, which it
// keeps.
func (c *chunks) readTrailer() error {
	var fields strings.Builder
	signed := false
	for range maxLines {
		raw, err := c.in.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(raw) == 0 && signed {
			return io.EOF
		}
		if err != nil {
			break
		}
		line := strings.TrimRight(string(raw), "\r\n")
		end := string(raw[len(line):])
		name, value, ok := strings.Cut(line, ":")
		switch {
		case line == "":
		case !ok || name == "" || signed:
			return fmt.Errorf("%w have a malformed trailer", ErrChunks)
		case strings.EqualFold(name, trailerField):
			if !isHash(value) {
				return fmt.Errorf("%w have a malformed trailer", ErrChunks)
			}
			hash := sha256.Sum256([]byte(fields.String()))
			c.sign("AWS4-HMAC-SHA256-TRAILER", hex.EncodeToString(hash[:]))
			line, signed = name+":"+c.last, true
		default:
			fields.WriteString(strings.ToLower(name) + ":" + strings.TrimSpace(value) + "\n")
		}
		c.ready = append(c.ready, line+end...)
	}
	return fmt.Errorf("%w have a malformed trailer", ErrChunks)
}

// sign signs the next part of the body.
func (c *chunks) sign(kind string, hashes ...string) {
	text := strings.Join(append([]string{kind, c.date, c.scope, c.last}, hashes...), "\n")
	c.last = hex.EncodeToString(sum(c.key, text))
}

// line reads a line without its end.
func (c *chunks) line() (string, error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, bufio.ErrBufferFull) {
			return "", fmt.Errorf("%w have a line that is too long", ErrChunks)
		}
		return "", cut(err)
	}
	return strings.TrimSuffix(string(line[:len(line)-1]), "\r"), nil
}

// end reads the end of a line.
func (c *chunks) end() error {
	line, err := c.line()
	if err == nil && line != "" {
		err = fmt.Errorf("%w are longer than they say", ErrChunks)
	}
	return err
}

// over returns io.EOF if the body has ended.
func (c *chunks) over() error {
	_, err := c.in.ReadByte()
	if err == nil {
		return fmt.Errorf("%w end before the body does", ErrChunks)
	}
	return err
}

func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w are cut off", ErrChunks)
	}
	return err
}
