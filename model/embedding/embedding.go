// Package embedding reads and rewrites answers of /v1/embeddings.
//
// A vector is a list of numbers, or the base64 of its numbers as little-endian float32.
// OpenAI's clients for Python and JavaScript request the latter unless their caller sets
// encoding_format. Some servers know only lists.
package embedding

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/berth-run/berth"
)

// The values of encoding_format.
const (
	Float  = "float"
	Base64 = "base64"
)

// Decode returns the vectors of an answer in the order of the inputs. It returns an error
// unless the answer has one for each of n inputs, all of the same length.
func Decode(answer []byte, n int) ([][]float32, error) {
	var body struct {
		Data []struct {
			Index     *int            `json:"index"`
			Embedding json.RawMessage `json:"embedding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(answer, &body); err != nil {
		return nil, fmt.Errorf("decode embeddings: %w", err)
	}
	if len(body.Data) != n {
		return nil, fmt.Errorf("decode embeddings: got %d for %d inputs", len(body.Data), n)
	}
	all := make([][]float32, n)
	for i, d := range body.Data {
		if d.Index != nil {
			i = *d.Index
		}
		if i < 0 || i >= n || all[i] != nil {
			return nil, fmt.Errorf("decode embeddings: index %d is invalid", i)
		}
		v, err := vector(d.Embedding)
		if err != nil {
			return nil, fmt.Errorf("decode embedding %d: %w", i, err)
		}
		all[i] = v
	}
	for _, v := range all {
		if len(v) == 0 || len(v) != len(all[0]) {
			return nil, errors.New("decode embeddings: the vectors differ in length")
		}
	}
	return all, nil
}

// Check returns an error for the client unless an answer has one vector for each of n
// inputs, all of the same length.
func Check(answer []byte, n int) error {
	var body struct {
		Data []struct {
			Index     *int            `json:"index"`
			Embedding json.RawMessage `json:"embedding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(answer, &body); err != nil {
		return unreadable(err)
	}
	if len(body.Data) != n {
		return wrong("%d embeddings for an input of %d texts", len(body.Data), n)
	}
	seen, length := make([]bool, n), 0
	for i, d := range body.Data {
		if d.Index != nil {
			i = *d.Index
		}
		if i < 0 || i >= n || seen[i] {
			return wrong("embeddings with the index %d twice or out of range", i)
		}
		seen[i] = true
		size, err := lengthOf(d.Embedding)
		if err != nil {
			return wrong("an embedding, index %d, that is not a list of numbers or the base64 of float32", i)
		}
		if length == 0 {
			length = size
		}
		if size == 0 || size != length {
			return wrong("embeddings of different lengths: %d and %d", length, size)
		}
	}
	return nil
}

// lengthOf returns the number of dimensions of a vector.
func lengthOf(raw json.RawMessage) (int, error) {
	if isText(raw) {
		v, err := vector(raw)
		return len(v), err
	}
	if !bytes.HasPrefix(raw, []byte{'['}) || bytes.ContainsAny(raw, `"{tfn`) || bytes.IndexByte(raw[1:], '[') >= 0 {
		return 0, errors.New("not a list of numbers")
	}
	if len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0 {
		return 0, nil
	}
	return bytes.Count(raw, []byte{','}) + 1, nil
}

// Inputs returns the number of texts of the field "input" of a request: a text, a list of
// texts, a list of tokens, which is one text, or a list of such lists. raw must be valid.
func Inputs(raw json.RawMessage) int {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '[' {
		return 1
	}
	if inner := bytes.TrimSpace(raw[1:]); inner[0] != '"' && inner[0] != '[' {
		return 1
	}
	n, depth := 1, 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case ',':
			if depth == 1 {
				n++
			}
		}
	}
	return n
}

// vector decodes a vector in either form.
func vector(raw json.RawMessage) (v []float32, err error) {
	if !isText(raw) {
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, fmt.Errorf("decode vector: %w", err)
		}
		return v, nil
	}
	var packed []byte // decoded from base64
	if err := json.Unmarshal(raw, &packed); err != nil {
		return nil, fmt.Errorf("decode packed vector: %w", err)
	}
	if len(packed)%4 != 0 {
		return nil, fmt.Errorf("%d bytes are not a list of float32", len(packed))
	}
	v = make([]float32, len(packed)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(packed[4*i:]))
	}
	return v, nil
}

func isText(raw json.RawMessage) bool { return bytes.HasPrefix(raw, []byte{'"'}) }

// Convert returns an answer with its vectors in a format. It returns an error for the
// client unless they have the given number of dimensions; 0 means any. Vectors in the
// format and all other fields stay as they are.
func Convert(answer []byte, format string, dimensions int) ([]byte, error) {
	var body map[string]json.RawMessage
	var data []map[string]json.RawMessage
	if err := json.Unmarshal(answer, &body); err != nil {
		return nil, unreadable(err)
	}
	if err := json.Unmarshal(body["data"], &data); err != nil {
		return nil, unreadable(err)
	}
	changed := false
	for _, d := range data {
		raw := d["embedding"]
		same := isText(raw) == (format == Base64)
		if same && dimensions == 0 {
			continue
		}
		v, err := vector(raw)
		if err != nil {
			return nil, unreadable(err)
		}
		if dimensions > 0 && len(v) != dimensions {
			return nil, berth.Invalid("dimensions",
				"This model does not support specifying dimensions: its upstream returned %d of them. Remove 'dimensions', or choose another model.",
				len(v))
		}
		if same {
			continue
		}
		if d["embedding"], err = encode(v, format); err != nil {
			return nil, unreadable(err)
		}
		changed = true
	}
	if !changed {
		return answer, nil
	}
	var err error
	if body["data"], err = json.Marshal(data); err != nil {
		return nil, unreadable(err)
	}
	return json.Marshal(body)
}

// encode returns a vector in a format. A number that JSON cannot express is an error.
func encode(v []float32, format string) (json.RawMessage, error) {
	if format == Float {
		return json.Marshal(v)
	}
	packed := make([]byte, 4*len(v))
	for i, f := range v {
		binary.LittleEndian.PutUint32(packed[4*i:], math.Float32bits(f))
	}
	return json.Marshal(base64.StdEncoding.EncodeToString(packed))
}

func wrong(what string, args ...any) error {
	return berth.Errorf(berth.CodeUpstream, "The upstream of this model sent "+what+".", args...)
}

func unreadable(err error) error {
	return &berth.Error{Code: berth.CodeUpstream, Message: "The upstream sent embeddings that Berth cannot read.",
		Err: err}
}
