package guest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"

	"github.com/berth-run/berth/guest/mux"
)

// smallFile is the size up to which WriteFile sends a file with its length, on a connection
// that stays open.
const smallFile = 32 << 10

// WriteFile writes a file below root and creates its directories, owned by the default
// user. The file appears whole or not at all; the body is streamed.
func (c *Client) WriteFile(ctx context.Context, root, path, user string, body io.Reader) error {
	start := make([]byte, smallFile)
	n, err := fill(body, start)
	start = start[:n]
	if err == io.EOF {
		body = bytes.NewReader(start)
	} else if err == nil {
		body = InFrames(io.MultiReader(bytes.NewReader(start), body))
	} else {
		return err
	}
	resp, err := c.filesRequest(ctx, http.MethodPost, root, path, user, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return err
}

// frame is the size of writes of files where the guest's memory is not shared, in bytes.
const frame = 256 << 10

var frames = sync.Pool{New: func() any { b := make([]byte, frame); return &b }}

// InFrames returns the body of a request that is sent to a guest in large pieces, even if its
// reads are short.
func InFrames(file io.Reader) io.ReadCloser {
	if file, ok := file.(io.ReadCloser); ok {
		return inFrames{file}
	}
	return inFrames{io.NopCloser(file)}
}

type inFrames struct{ io.ReadCloser }

// WriteTo implements io.WriterTo; net/http calls it.
func (f inFrames) WriteTo(w io.Writer) (int64, error) {
	buf := frames.Get().(*[]byte)
	defer frames.Put(buf)
	total := int64(0)
	for {
		n, err := fill(f.ReadCloser, *buf)
		if n > 0 {
			if _, err := w.Write((*buf)[:n]); err != nil {
				return total, err
			}
			total += int64(n)
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// fill is io.ReadFull, but returns io.EOF for an early end. io.ErrUnexpectedEOF comes from
// the reader itself: an upload that broke off.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = r.Read(buf[n:])
		n += m
	}
	return n, err
}

// A transport sends requests over a client's session.
type transport struct {
	*http.Transport
	client *Client
}

// RoundTrip implements http.RoundTripper. A body of InFrames has a stream of its own.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if body, ok := r.Body.(inFrames); ok {
		return t.client.upload(r, body)
	}
	return t.Transport.RoundTrip(r)
}

// upload sends a request with a large body of unknown length. It differs from net/http in
// that a chunk and its head are one piece, which is read into the memory from which the guest
// reads it.
func (c *Client) upload(r *http.Request, body inFrames) (*http.Response, error) {
	stream, err := c.open(r.Context())
	if err != nil {
		body.Close()
		return nil, err
	}
	stop := context.AfterFunc(r.Context(), func() { stream.Reset() })
	sent := make(chan error, 1)
	go func() {
		defer body.Close()
		err := sendChunks(stream, r, body)
		sent <- err
		if err != nil {
			stream.Reset() // otherwise the guest waits for the rest
		}
	}()
	head := &io.LimitedReader{R: stream, N: maxHead}
	resp, err := http.ReadResponse(bufio.NewReader(head), r)
	if err == nil {
		head.N = math.MaxInt64
		resp.Body = &answer{resp.Body, stream, stop}
		return resp, nil
	}
	stop()
	stream.Reset()
	select {
	case failed := <-sent: // the reason
		if failed != nil {
			err = failed
		}
	default:
	}
	if r.Context().Err() != nil {
		err = context.Cause(r.Context())
	}
	return nil, err
}

// An answer is the body of a response, whose Close also ends its stream.
type answer struct {
	io.ReadCloser
	stream *mux.Stream
	stop   func() bool
}

func (a *answer) Close() error {
	a.stop()
	return a.stream.Close()
}

// ownHeader are the fields that sendChunks writes itself.
var ownHeader = map[string]bool{"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Trailer": true}

// sendChunks sends a request in HTTP/1.1.
func sendChunks(to *mux.Stream, r *http.Request, body io.Reader) error {
	var head strings.Builder
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: guest\r\nTransfer-Encoding: chunked\r\n", r.Method, r.URL.RequestURI())
	if err := r.Header.WriteSubset(&head, ownHeader); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	if _, err := io.WriteString(to, head.String()+"\r\n"); err != nil {
		return err
	}
	const size, end = "%06x\r\n", "\r\n"
	_, err := to.SendFrom(func(piece []byte) (int, error) {
		first := len("000000\r\n")
		n, err := fill(body, piece[first:len(piece)-len(end)])
		if n == 0 {
			return 0, err
		}
		copy(piece, fmt.Appendf(nil, size, n))
		return first + n + copy(piece[first+n:], end), err
	})
	if err == nil {
		_, err = io.WriteString(to, "0\r\n\r\n")
	}
	return err
}
