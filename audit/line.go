package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// A Hash is the SHA-256 of an entry's line without the field "hash".
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText returns the hash in hexadecimal digits.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText parses hexadecimal digits in exactly String's form, so that any change to a
// line is an error.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(h)) {
		return errors.New("not a SHA-256 in hexadecimal digits")
	}
	if _, err := hex.Decode(h[:], text); err != nil {
		return fmt.Errorf("decode SHA-256: %w", err)
	}
	if h.String() != string(text) {
		return errors.New("SHA-256 must be in lower case")
	}
	return nil
}

// maxLine bounds a line. The longest lists the living containers.
const maxLine = 8 << 20

// A line ends with hashField, the hash in hexadecimal digits, and hashEnd. The hash covers
// the bytes before hashField and a closing brace, so that no canonical JSON is needed.
const (
	hashField = `,"hash":"`
	hashEnd   = `"}`
	hashTail  = len(hashField) + 2*sha256.Size + len(hashEnd)
)

// MarshalJSON returns the entry's line.
func (e *Entry) MarshalJSON() ([]byte, error) {
	body, err := json.Marshal((*bareEntry)(e))
	return appendHash(nil, body, e.Hash), err
}

// A bareEntry entry marshals without its hash.
type bareEntry Entry

// appendEntry appends the entry's line to b and sets its hash.
func appendEntry(b []byte, e *Entry) ([]byte, error) {
	body, err := json.Marshal((*bareEntry)(e))
	if err != nil {
		return b, err
	}
	e.Hash = sha256.Sum256(body)
	return append(appendHash(b, body, e.Hash), '\n'), nil
}

func appendHash(b, body []byte, hash Hash) []byte {
	b = append(b, body[:len(body)-1]...)
	b = append(b, hashField...)
	b = hex.AppendEncode(b, hash[:])
	return append(b, hashEnd...)
}

// parseEntry parses a line, without its line feed, and verifies its hash.
func parseEntry(line []byte) (*Entry, error) {
	head := len(line) - hashTail
	if head < 1 || string(line[head:head+len(hashField)]) != hashField || !bytes.HasSuffix(line, []byte(hashEnd)) {
		return nil, errors.New("not an entry with a hash")
	}
	var hash Hash
	if err := hash.UnmarshalText(line[head+len(hashField) : len(line)-len(hashEnd)]); err != nil {
		return nil, err
	}
	sum := sha256.New()
	sum.Write(line[:head])
	sum.Write([]byte("}"))
	if Hash(sum.Sum(nil)) != hash {
		return nil, errors.New("content does not match hash")
	}
	e := &Entry{}
	if err := json.Unmarshal(line, e); err != nil {
		return nil, fmt.Errorf("not an entry: %w", err)
	}
	e.Hash = hash
	return e, nil
}
