package batch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
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

// A lineError is an error in a line of the input.
type lineError struct{ code, param, message string }

func (f *lineError) Error() string { return f.code + ": " + f.message }

func (f *lineError) report(line int) berth.BatchError {
	e := berth.BatchError{Code: f.code, Message: f.message}
	if f.param != "" {
		e.Param = &f.param
	}
	if line > 0 {
		e.Line = &line
	}
	return e
}

var errNotJSON = &lineError{"invalid_json_line", "", "This line is not parseable as valid JSON."}

// lineFields are the fields of a line.
var lineFields = []string{"custom_id", "method", "url", "body"}

// parse reads a request. Its errors are faults. The request shares no memory with line.
func parse(line []byte, number int, endpoint string) (*Request, error) {
	if !utf8.Valid(line) || line[0] != '{' || !json.Valid(line) {
		return nil, errNotJSON
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return nil, errNotJSON
	}
	var texts [3]string
	for i, name := range lineFields[:len(texts)] {
		var value any
		_ = json.Unmarshal(fields[name], &value) // absent or valid
		switch value := value.(type) {
		case nil:
			return nil, missing(name)
		case string:
			texts[i] = value
		default:
			return nil, &lineError{"invalid_request", name,
				fmt.Sprintf("Invalid type for '%s': expected a string, but got a %s instead.", name, kindOf(value))}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(lineFields, name) {
			name = rule.Clip(name)
			return nil, &lineError{"unknown_parameter", name, "Unknown parameter: '" + name +
				"'. A line has the fields custom_id, method, url and body."}
		}
	}
	id, method, url, body := texts[0], texts[1], texts[2], fields["body"]
	switch {
	case len(body) == 0 || string(body) == "null":
		return nil, missing("body")
	case id == "" || len(id) > maxID:
		return nil, &lineError{"invalid_request", "custom_id",
			fmt.Sprintf("Invalid 'custom_id': expected a string of 1 to %d bytes.", maxID)}
	case method != "POST":
		return nil, &lineError{"invalid_method", "method", "Invalid 'method': expected 'POST'."}
	case url != endpoint:
		message := "The URL provided for this request does not match the batch endpoint " + endpoint + "."
		if !slices.Contains(Endpoints, url) {
			message = "The URL provided for this request is not supported in batches. Expected the batch endpoint " +
				endpoint + "."
		}
		return nil, &lineError{"url_mismatch", "url", message}
	}
	r := &Request{Line: number, CustomID: id, URL: url, Body: body}
	return r, r.check()
}

// kindOf names the type of a JSON value as encoding/json does.
func kindOf(value any) string {
	switch value.(type) {
	case bool:
		return "bool"
	case float64:
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

func missing(name string) error {
	return &lineError{"missing_required_parameter", name, "Missing required parameter: '" + name + "'."}
}

// check reads the fields of the body that concern a batch. The endpoint checks the others.
func (r *Request) check() error {
	if r.Body[0] != '{' {
		return &lineError{"invalid_request", "body", "Invalid type for 'body': expected an object."}
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
		return &lineError{"invalid_request", "body.model", "Invalid type for 'body.model': expected a string."}
	}
	for name, value := range map[string]json.RawMessage{"body.stream": body.Stream,
		"body.background": body.Background} {
		if text := string(value); text != "" && text != "false" && text != "null" {
			return &lineError{"unsupported_parameter", name, "Unsupported parameter: '" + name +
				"'. A batch waits for the whole answer itself."}
		}
	}
	return nil
}
