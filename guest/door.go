package guest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/berth-run/berth/guest/guestpb/process"
	"github.com/berth-run/berth/guest/guestpb/process/processconnect"
)

// A Listener receives the output and the end of a process that a client of a Door started.
// Its methods are called one at a time; End or Detach is the last.
type Listener interface {
	Output(stderr bool, data []byte) // data must not be retained
	End(exitCode int)                // -1 if a signal ended it; NoCommand or NotRun if it could not be started
	Detach()                         // the client that started it disconnected, or the guest did not answer
}

// A Door passes HTTP requests on to a guest, as Transport does, and detects those that
// start a process.
type Door struct {
	next  http.RoundTripper
	begin func(context.Context, ProcessRequest) Listener
}

// Door returns a door. begin is called before a process is started.
func (c *Client) Door(begin func(context.Context, ProcessRequest) Listener) *Door {
	return &Door{c.Transport(), begin}
}

// maxStart bounds the request that starts a process, in bytes.
const maxStart = 4 << 20

// RoundTrip implements http.RoundTripper.
func (d *Door) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path != processconnect.ProcessStartProcedure {
		return d.next.RoundTrip(r)
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	codec, ok := codecs[kind]
	if !ok { // another protocol would start a process without a record
		return refuse(r, http.StatusUnsupportedMediaType), nil
	}
	if r.Body == nil {
		return refuse(r, http.StatusBadRequest), nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxStart+1))
	if err != nil {
		return nil, err
	}
	req, err := startRequest(r.Header, body, codec)
	if err != nil {
		return refuse(r, http.StatusBadRequest), nil
	}
	l := d.begin(r.Context(), req)
	r = r.Clone(r.Context())
	r.Header.Del("Connect-Accept-Encoding") // the answer is read here, too
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp, err := d.next.RoundTrip(r)
	if err != nil {
		l.Detach()
		return nil, err
	}
	resp.Body = &tap{ReadCloser: resp.Body, to: l, codec: codec}
	return resp, nil
}

func refuse(r *http.Request, status int) *http.Response {
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     http.Header{}, Body: http.NoBody, Request: r}
}

// A codec decodes the messages of one content type.
type codec func([]byte, proto.Message) error

var codecs = map[string]codec{
	"application/connect+proto": proto.Unmarshal,
	"application/connect+json":  protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal,
}

// Flags of a message in a Connect stream.
const (
	flagCompressed = 1
	flagEnd        = 2
	headSize       = 5 // flags, and the length in big endian
)

// startRequest decodes the single message of a request.
func startRequest(h http.Header, body []byte, decode codec) (ProcessRequest, error) {
	var req ProcessRequest
	if len(body) < headSize || len(body) > maxStart ||
		int64(binary.BigEndian.Uint32(body[1:])) != int64(len(body)-headSize) {
		return req, errors.New("not one message")
	}
	payload := body[headSize:]
	if body[0]&flagCompressed != 0 {
		if h.Get("Connect-Content-Encoding") != "gzip" {
			return req, errors.New("unknown compression")
		}
		plain, err := gzip.NewReader(bytes.NewReader(payload))
		if err != nil {
			return req, fmt.Errorf("unpack request: %w", err)
		}
		if payload, err = io.ReadAll(io.LimitReader(plain, maxStart)); err != nil {
			return req, err
		}
	}
	var m pb.StartRequest
	if err := decode(payload, &m); err != nil {
		return req, err
	}
	p := m.GetProcess()
	return ProcessRequest{User: requestUser(h), Cmd: p.GetCmd(), Args: p.GetArgs(), Env: p.GetEnvs(),
		Dir: p.GetCwd()}, nil
}

// requestUser returns the user that a request acts for, as set by setUser.
func requestUser(h http.Header) string {
	encoded, _ := strings.CutPrefix(h.Get("Authorization"), "Basic ")
	raw, _ := base64.StdEncoding.DecodeString(encoded)
	name, _, _ := strings.Cut(string(raw), ":")
	return name
}

// A tap decodes an answer as it passes and reports its events to a listener.
type tap struct {
	io.ReadCloser
	to    Listener // nil after the end was reported
	codec codec

	head    []byte // of the next message
	payload []byte
	want    int // bytes of payload, if head is complete
}

func (t *tap) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	t.feed(p[:n])
	if err != nil {
		t.detach()
	}
	return n, err
}

func (t *tap) Close() error {
	t.detach()
	return t.ReadCloser.Close()
}

func (t *tap) detach() {
	if t.to != nil {
		t.to.Detach()
		t.to = nil
	}
}

// feed decodes the next bytes of the answer.
func (t *tap) feed(p []byte) {
	for len(p) > 0 && t.to != nil {
		if len(t.head) < headSize {
			n := min(headSize-len(t.head), len(p))
			t.head, p = append(t.head, p[:n]...), p[n:]
			if len(t.head) < headSize {
				return
			}
			if size := binary.BigEndian.Uint32(t.head[1:]); size <= maxMessage {
				t.want = int(size)
			} else {
				t.detach()
				return
			}
		}
		n := min(t.want-len(t.payload), len(p))
		t.payload, p = append(t.payload, p[:n]...), p[n:]
		if len(t.payload) == t.want {
			t.message()
			t.head, t.payload = t.head[:0], t.payload[:0]
		}
	}
}

// message reports one message.
func (t *tap) message() {
	if t.head[0] == flagEnd {
		t.refused()
		return
	}
	var m pb.StartResponse
	if t.head[0]&(flagCompressed|flagEnd) != 0 || t.codec(t.payload, &m) != nil {
		t.detach()
		return
	}
	switch ev := m.GetEvent().GetEvent().(type) {
	case *pb.ProcessEvent_Data:
		t.to.Output(false, ev.Data.GetStdout())
		t.to.Output(false, ev.Data.GetPty())
		t.to.Output(true, ev.Data.GetStderr())
	case *pb.ProcessEvent_End:
		t.to.End(int(ev.End.GetExitCode()))
		t.to = nil
	}
}

// refused reports the end of an answer that did not contain the end of the process: normally the
// error with which the guest could not start it.
func (t *tap) refused() {
	var end struct {
		Error struct{ Message string } `json:"error"`
	}
	_ = json.Unmarshal(t.payload, &end)
	code := StartExitCode(end.Error.Message)
	if code == 0 {
		t.detach()
		return
	}
	t.to.Output(true, []byte(end.Error.Message+"\n"))
	t.to.End(code)
	t.to = nil
}

// Exit codes of shells for a command that could not be started.
const (
	NotRun    = 126 // it exists, but cannot be run
	NoCommand = 127 // there is no such command
)

// StartExitCode returns the exit code for the message of a guest's error that a process could not be
// started: NotRun, NoCommand, or 0 if the error has another cause.
func StartExitCode(message string) int {
	contains := func(part string) bool { return strings.Contains(message, part) }
	switch {
	case contains("cwd '"), contains("permission denied"), contains("exec format error"):
		return NotRun
	case contains("executable file not found"), contains("no such file or directory"):
		return NoCommand
	}
	return 0
}

// Client returns a client of the guest through the door.
func (d *Door) Client() *Client { return NewHTTPClient("http://guest", &http.Client{Transport: d}) }
