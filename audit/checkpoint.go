package audit

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// A Checkpoint states the number of entries in a record and the hash of the last one. Its
// signed form is that of transparency logs (C2SP tlog-checkpoint), a note of three lines,
// except that the hash is that of a chain, not of a tree's root.
type Checkpoint struct {
	Origin string // name of the record and its key
	Size   int64
	Hash   Hash
}

// sign returns the checkpoint as a signed note.
func (c Checkpoint) sign(signer note.Signer) ([]byte, error) {
	text := fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Hash[:]))
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	if err != nil {
		return nil, fmt.Errorf("sign checkpoint: %w", err)
	}
	return signed, nil
}

// OpenCheckpoint verifies the signature of a checkpoint and returns the checkpoint.
func OpenCheckpoint(signed []byte, key note.Verifier) (Checkpoint, error) {
	var c Checkpoint
	n, err := note.Open(signed, note.VerifierList(key))
	if err != nil {
		return c, fmt.Errorf("not signed with the key %s: %w", key.Name(), err)
	}
	lines := strings.Split(n.Text, "\n")
	if len(lines) != 4 || lines[0] != key.Name() {
		return c, errors.New("not a checkpoint of this record")
	}
	c.Origin = lines[0]
	if c.Size, err = strconv.ParseInt(lines[1], 10, 64); err != nil || c.Size < 1 || strconv.FormatInt(c.Size,
		10) != lines[1] {
		return c, errors.New("checkpoint has no valid size")
	}
	hash, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(hash) != len(c.Hash) {
		return c, errors.New("checkpoint has no valid hash")
	}
	copy(c.Hash[:], hash)
	return c, nil
}

// checkpointField starts a checkpoint's line, which is a JSON object.
const checkpointField = `{"checkpoint":`

// appendCheckpoint appends the line of a signed checkpoint to b.
func appendCheckpoint(b, signed []byte) ([]byte, error) {
	text, err := json.Marshal(string(signed))
	if err != nil {
		return b, err
	}
	b = append(b, checkpointField...)
	b = append(b, text...)
	return append(b, "}\n"...), nil
}

// parseCheckpoint returns the signed note of a line, and whether the line is a checkpoint.
func parseCheckpoint(line []byte) (signed []byte, ok bool) {
	if !bytes.HasPrefix(line, []byte(checkpointField)) {
		return nil, false
	}
	var c struct{ Checkpoint string }
	if json.Unmarshal(line, &c) != nil {
		return nil, false
	}
	return []byte(c.Checkpoint), true
}
