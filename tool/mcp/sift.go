package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth/tool"
)

// maxOmissions bounds the reasons that omissions hold.
const maxOmissions = 8

// omissions are the tools that were left out of a list.
type omissions struct {
	count   int
	reasons []string // of the first tools, for the operator's log
}

func (o *omissions) add(name, reason string) {
	if o.count++; len(o.reasons) < maxOmissions {
		o.reasons = append(o.reasons, fmt.Sprintf("%q: %s", tool.Shorten(strings.ToValidUTF8(name, ""), maxName),
			reason))
	}
}

func (o *omissions) join(more omissions) {
	o.count += more.count
	o.reasons = append(o.reasons, more.reasons...)
	o.reasons = o.reasons[:min(len(o.reasons), maxOmissions)]
}

// sift returns a message of a server without the tools that the SDK cannot decode: one of
// them would make it refuse the whole list.
func sift(message []byte, omitted func(name, reason string)) []byte {
	if !bytes.Contains(message, []byte(`"tools"`)) {
		return message
	}
	var fields, result map[string]json.RawMessage
	var list, usable []json.RawMessage
	if json.Unmarshal(message, &fields) != nil || json.Unmarshal(fields["result"], &result) != nil ||
		json.Unmarshal(result["tools"], &list) != nil {
		return message
	}
	for _, raw := range list {
		if reason := undecodable(raw); reason != "" {
			var named struct{ Name any }
			_ = json.Unmarshal(raw, &named) // it may be no object
			name, _ := named.Name.(string)
			omitted(name, reason)
			continue
		}
		usable = append(usable, raw)
	}
	if len(usable) == len(list) {
		return message
	}
	var err error
	if result["tools"], err = json.Marshal(usable); err != nil {
		return message
	}
	if fields["result"], err = json.Marshal(result); err != nil {
		return message
	}
	sifted, err := json.Marshal(fields)
	if err != nil {
		return message
	}
	return sifted
}

// undecodable returns why the SDK cannot decode a tool, or "".
func undecodable(raw json.RawMessage) string {
	err := json.Unmarshal(raw, new(sdk.Tool))
	if err == nil && string(raw) != "null" {
		return ""
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return fmt.Sprintf("its field %s is a JSON %s", wrong.Field, wrong.Value)
	}
	return "it is not an object of the protocol"
}

// siftBody makes the body of an answer pass through sift, once there is memory for it. Of an event stream, each
// line of data is a message.
func siftBody(ctx context.Context, resp *http.Response, in *intake) {
	omitted := in.fault.omit
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // "" if there is none
	switch kind {
	case "text/event-stream":
		lines := bufio.NewReader(resp.Body)
		resp.Body = &siftedBody{ReadCloser: resp.Body, next: func() ([]byte, error) {
			line, err := lines.ReadBytes('\n')
			if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				if err := in.decode(ctx, data); err != nil {
					return nil, err
				}
				if sifted := sift(data, omitted); len(sifted) != len(data) {
					line = append(append([]byte("data: "), sifted...), '\n')
				}
			}
			return line, err
		}}
	case "application/json":
		body := resp.Body
		resp.ContentLength = -1
		resp.Body = &siftedBody{ReadCloser: body, next: func() ([]byte, error) {
			message, err := io.ReadAll(body)
			if err == nil {
				err = in.decode(ctx, message)
			}
			if err != nil {
				return nil, err
			}
			return sift(message, omitted), io.EOF
		}}
	}
}

// A siftedBody is a body in pieces that next returns.
type siftedBody struct {
	io.ReadCloser
	next func() ([]byte, error)
	rest []byte // of the last piece
	err  error  // after rest
}

func (b *siftedBody) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.rest, b.err = b.next()
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}
