package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth"
)

const (
	// maxValues bounds the JSON values of one body, so that a small body cannot
	// become a large heap.
	maxValues = 1_000_000
	// maxDepth bounds their nesting.
	maxDepth = 256
)

// decodeBody reads a JSON body, checks it against shape and stores it in v. Its
// errors are for the client.
func (s *server) decodeBody(w http.ResponseWriter, r *http.Request, shape rule, v any) error {
	if !isJSON(r) {
		return berth.Errorf(berth.CodeInvalid, "The request body must be application/json.")
	}
	body, err := io.ReadAll(s.body(w, r, s.MaxBody))
	if err != nil {
		return bodyError(err)
	}
	tree, err := parseJSON(body)
	if err != nil {
		return err
	}
	if _, ok := tree.(map[string]any); !ok {
		return &berth.Error{Code: berth.CodeInvalid, Wire: "invalid_type",
			Message: "Invalid body: expected a JSON object, but got " + kindOf(tree) + " instead."}
	}
	if err := shape("", tree); err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("a checked body does not decode: %w", err)
	}
	return nil
}

// decodeOptionalBody is decodeBody for a request that may come without one.
func (s *server) decodeOptionalBody(w http.ResponseWriter, r *http.Request, shape rule, v any) error {
	if r.ContentLength == 0 {
		return nil
	}
	return s.decodeBody(w, r, shape, v)
}

// parseJSON returns the value in body, numbers as json.Number. It is stricter
// than encoding/json: UTF-8 must be valid and an object must not repeat a name,
// for otherwise what was checked need not be what is used.
func parseJSON(body []byte) (any, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, invalidJSON("it is empty")
	}
	if !utf8.Valid(body) {
		return nil, invalidJSON("it is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	p := parser{dec: dec}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, invalidJSON("something follows the object")
	}
	return v, nil
}

func invalidJSON(why string) error {
	return berth.Errorf(berth.CodeInvalid, "We could not parse the JSON body of your request: %s.", why)
}

// A parser builds the tree of one body.
type parser struct {
	dec    *json.Decoder
	values int
}

func (p *parser) value(depth int) (any, error) {
	tok, err := p.dec.Token()
	if err != nil {
		return nil, p.syntax(err)
	}
	p.values++
	if p.values > maxValues {
		return nil, berth.Errorf(berth.CodeTooLarge, "The request body has more than %d JSON values.", maxValues)
	}
	if depth > maxDepth {
		return nil, invalidJSON(fmt.Sprintf("it is nested more than %d deep", maxDepth))
	}
	switch tok {
	case json.Delim('{'):
		return p.object(depth)
	case json.Delim('['):
		return p.array(depth)
	}
	return tok, nil
}

func (p *parser) object(depth int) (any, error) {
	fields := map[string]any{}
	for p.dec.More() {
		tok, err := p.dec.Token()
		if err != nil {
			return nil, p.syntax(err)
		}
		name := tok.(string) // the decoder lets nothing else be a name
		if _, twice := fields[name]; twice {
			return nil, invalidJSON(fmt.Sprintf("an object has the name %q twice", clip(name)))
		}
		if fields[name], err = p.value(depth + 1); err != nil {
			return nil, err
		}
	}
	_, err := p.dec.Token()
	return fields, p.syntax(err)
}

func (p *parser) array(depth int) (any, error) {
	values := []any{}
	for p.dec.More() {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	_, err := p.dec.Token()
	return values, p.syntax(err)
}

// syntax words an error of the decoder for the client.
func (p *parser) syntax(err error) error {
	switch {
	case err == nil:
		return nil
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return invalidJSON("it ends in the middle")
	}
	return invalidJSON(fmt.Sprintf("%s, near byte %d", strings.TrimPrefix(err.Error(), "json: "), p.dec.InputOffset()))
}

// clip shortens what a client sent for use in a message.
func clip(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
