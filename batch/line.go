package batch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/berth-run/berth"
)

// A Request is a line of an input file.
type Request struct {
	Line     int // counted from 1
	CustomID string
	URL      string
	Body     json.RawMessage
	Model    string // of the body; empty if it names none
}

// lines reads the lines of an input file. Empty lines and a byte order mark at the start are
// skipped.
type lines struct {
	in     *bufio.Reader
	number int
	buffer []byte
}

func newLines(r io.Reader) *lines { return &lines{in: bufio.NewReaderSize(r, 64<<10)} }

var errTooLong = errors.New("line is too long")

// next returns the next line and its number, or io.EOF. The line is valid until the next call.
// After errTooLong the following line can be read.
func (l *lines) next() ([]byte, int, error) {
	for {
		line, err := l.read()
		if err != nil {
			return nil, l.number, err
		}
		if l.number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, l.number, nil
		}
	}
}

// read returns a line with its end.
func (l *lines) read() ([]byte, error) {
	l.buffer = l.buffer[:0]
	long := false
	for {
		piece, err := l.in.ReadSlice('\n')
		if len(l.buffer)+len(piece) > MaxLine+1 {
			long = true
		}
		if !long {
			l.buffer = append(l.buffer, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (err != io.EOF || len(l.buffer) == 0 && !long):
			return nil, err
		}
		l.number++
		if long {
			return nil, errTooLong
		}
		return l.buffer, nil
	}
}

// A fault is what is wrong with a line.
type fault struct{ code, param, message string }

func (f *fault) Error() string { return f.code + ": " + f.message }

func (f *fault) report(line int) berth.BatchError {
	e := berth.BatchError{Code: f.code, Message: f.message}
	if f.param != "" {
		e.Param = &f.param
	}
	if line > 0 {
		e.Line = &line
	}
	return e
}

var errNotJSON = &fault{"invalid_json_line", "", "This line is not parseable as valid JSON."}

// parse reads a request. Its errors are faults. The request shares no memory with line.
func parse(line []byte, number int, endpoint string) (*Request, error) {
	var fields struct {
		CustomID *string         `json:"custom_id"`
		Method   *string         `json:"method"`
		URL      *string         `json:"url"`
		Body     json.RawMessage `json:"body"`
	}
	if !utf8.Valid(line) || line[0] != '{' || !json.Valid(line) {
		return nil, errNotJSON
	}
	if err := json.Unmarshal(line, &fields); err != nil {
		wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
		if !ok {
			return nil, errNotJSON
		}
		return nil, &fault{"invalid_request", wrong.Field, fmt.Sprintf("Invalid type for '%s': expected a string, but got a %s instead.", wrong.Field, wrong.Value)}
	}
	for _, f := range []struct {
		name  string
		value *string
	}{{"custom_id", fields.CustomID}, {"method", fields.Method}, {"url", fields.URL}} {
		if f.value == nil {
			return nil, missing(f.name)
		}
	}
	switch {
	case len(fields.Body) == 0 || string(fields.Body) == "null":
		return nil, missing("body")
	case *fields.CustomID == "" || len(*fields.CustomID) > maxID:
		return nil, &fault{"invalid_request", "custom_id", fmt.Sprintf("Invalid 'custom_id': expected a string of 1 to %d bytes.", maxID)}
	case *fields.Method != "POST":
		return nil, &fault{"invalid_method", "method", "Invalid 'method': expected 'POST'."}
	case *fields.URL != endpoint:
		message := "The URL provided for this request does not match the batch endpoint " + endpoint + "."
		if !slices.Contains(Endpoints, *fields.URL) {
			message = "The URL provided for this request is not supported in batches. Expected the batch endpoint " + endpoint + "."
		}
		return nil, &fault{"url_mismatch", "url", message}
	}
	r := &Request{Line: number, CustomID: *fields.CustomID, URL: *fields.URL, Body: fields.Body}
	return r, r.check()
}

func missing(name string) error {
	return &fault{"missing_required_parameter", name, "Missing required parameter: '" + name + "'."}
}

// check reads the fields of the body that concern a batch. The endpoint checks the others.
func (r *Request) check() error {
	if r.Body[0] != '{' {
		return &fault{"invalid_request", "body", "Invalid type for 'body': expected an object."}
	}
	var body struct {
		Model      json.RawMessage `json:"model"`
		Stream     json.RawMessage `json:"stream"`
		Background json.RawMessage `json:"background"`
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return errNotJSON
	}
	if len(body.Model) > 0 && json.Unmarshal(body.Model, &r.Model) != nil {
		return &fault{"invalid_request", "body.model", "Invalid type for 'body.model': expected a string."}
	}
	for name, value := range map[string]json.RawMessage{"body.stream": body.Stream, "body.background": body.Background} {
		if text := string(value); text != "" && text != "false" && text != "null" {
			return &fault{"unsupported_parameter", name, "Unsupported parameter: '" + name + "'. A batch waits for the whole answer itself."}
		}
	}
	return nil
}
