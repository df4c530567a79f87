package exchange

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/jsonscan"
	"github.com/berth-run/berth/internal/rule"
)

// Decode reads a JSON body, checks it with a rule and decodes it into v. Its errors are for
// the client.
func (x *Exchange) Decode(r *http.Request, shape rule.Rule, v any) error {
	_, err := x.DecodeBody(r, shape, v)
	return err
}

// DecodeBody is Decode for a handler that may also forward the body, which it returns.
func (x *Exchange) DecodeBody(r *http.Request, shape rule.Rule, v any) (body []byte, err error) {
	if !IsJSON(r) {
		return nil, notJSON()
	}
	if body, err = x.ReadBody(r, x.server.Limits.MaxBody); err != nil {
		return nil, err
	}
	values, err := ScanJSON(body)
	if err != nil {
		return nil, err
	}
	if err := x.decoding.Reserve(r.Context(), jsonscan.Weight(len(body), values)); err != nil {
		return nil, err
	}
	tree, err := ParseJSON(body)
	if err != nil {
		return nil, err
	}
	if _, ok := tree.(map[string]any); !ok {
		return nil, &berth.Error{Code: berth.CodeInvalid, Wire: "invalid_type",
			Message: "Invalid body: expected a JSON object, but got " + rule.KindOf(tree) + " instead."}
	}
	if err := shape("", tree); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return nil, fmt.Errorf("decode a checked body: %w", err)
	}
	return body, nil
}

// notJSON returns the error for a body of another content type.
func notJSON() error {
	return berth.Errorf(berth.CodeInvalid,
		"Unsupported content type. This API method only accepts 'application/json' requests. Send the body with the header 'Content-Type: application/json'.")
}

// DecodeOptional is like Decode, but does nothing if the request has no body.
func (x *Exchange) DecodeOptional(r *http.Request, shape rule.Rule, v any) error {
	if r.ContentLength == 0 {
		return nil
	}
	return x.Decode(r, shape, v)
}

// ScanJSON counts the values of a body without decoding them. Its errors are for the
// client.
func ScanJSON(body []byte) (values int, err error) {
	most := jsonscan.MaxValues(len(body))
	values, err = jsonscan.Check(body, most, jsonscan.MaxDepth)
	switch {
	case errors.Is(err, jsonscan.ErrValues):
		return 0, berth.Errorf(berth.CodeTooLarge,
			"The request body has too many JSON values. Expected at most %d in a body of %d bytes.", most, len(body))
	case err != nil:
		return 0, invalidJSON(fmt.Sprintf("it is nested more than %d deep", jsonscan.MaxDepth))
	}
	return values, nil
}

// ParseJSON returns the value in body, with numbers as json.Number. It is stricter than
// encoding/json: it refuses invalid UTF-8 and repeated names in an object, so that the
// checked value is the one that is decoded later. Strings share the memory of body, which
// must not change: a caller that stores one must clone it.
func ParseJSON(body []byte) (any, error) {
	if jsonscan.Space(body, 0) == len(body) {
		return nil, invalidJSON("it is empty")
	}
	if !utf8.Valid(body) {
		return nil, invalidJSON("it is not valid UTF-8")
	}
	if _, err := ScanJSON(body); err != nil {
		return nil, err
	}
	if !json.Valid(body) {
		return nil, syntax(body)
	}
	p := parser{text: body}
	return p.value()
}

func invalidJSON(why string) error {
	return berth.Errorf(berth.CodeInvalid, "We could not parse the JSON body of your request: %s.", why)
}

// syntax returns the error for a body that is not JSON.
func syntax(body []byte) error {
	var skip struct{}
	e, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(body, &skip))
	switch {
	case !ok || int(e.Offset) >= len(body) && strings.Contains(e.Error(), "unexpected end"):
		return invalidJSON("it is incomplete")
	case strings.Contains(e.Error(), "after top-level value"):
		return invalidJSON("there is data after the object")
	}
	return invalidJSON(fmt.Sprintf("%s, near byte %d", strings.TrimPrefix(e.Error(), "json: "), e.Offset-1))
}

// A parser builds the tree of one body. The body must be valid JSON.
type parser struct {
	text []byte
	at   int
}

func (p *parser) space() { p.at = jsonscan.Space(p.text, p.at) }

func (p *parser) value() (any, error) {
	p.space()
	start := p.at
	switch p.text[start] {
	case '{':
		return p.object()
	case '[':
		return p.array()
	case '"':
		return p.string()
	}
	p.at = jsonscan.Value(p.text, start)
	switch p.text[start] {
	case 't':
		return true, nil
	case 'f':
		return false, nil
	case 'n':
		return nil, nil
	}
	return json.Number(view(p.text[start:p.at])), nil
}

func (p *parser) object() (any, error) {
	fields := map[string]any{}
	for p.next('}') {
		name, err := p.string()
		if err != nil {
			return nil, err
		}
		if _, twice := fields[name]; twice {
			return nil, invalidJSON(fmt.Sprintf("an object contains the name %q twice", rule.Clip(name)))
		}
		p.space()
		p.at++ // the colon
		if fields[name], err = p.value(); err != nil {
			return nil, err
		}
	}
	return fields, nil
}

func (p *parser) array() (any, error) {
	values := []any{}
	for p.next(']') {
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// next moves to the next element of an array or object and returns true, or moves past the
// closing bracket and returns false.
func (p *parser) next(closing byte) bool {
	p.space()
	if c := p.text[p.at]; c != closing { // the opening bracket, or a comma
		p.at++
		p.space()
	}
	if p.text[p.at] == closing {
		p.at++
		return false
	}
	return true
}

func (p *parser) string() (string, error) {
	start := p.at
	p.at = jsonscan.String(p.text, start)
	inner := p.text[start+1 : p.at-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return view(inner), nil
	}
	var s string
	if err := json.Unmarshal(p.text[start:p.at], &s); err != nil {
		return "", fmt.Errorf("decode string: %w", err)
	}
	return s, nil
}

// view returns a part of a body as a string without copying it.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
