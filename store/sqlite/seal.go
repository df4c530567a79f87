package sqlite

import (
	"context"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/keyring"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/store/sqlite/query"
)

// What clients have said is sealed in the file: what SQLite makes of it, in the
// write-ahead log, in pages that it has left, in blocks that the file system has
// got back, is noise without the key. Each response, container, uploaded file
// and object has a key of its own, which its deletion erases; see erase.go and
// package keyring. Ids, times, sizes, kinds, who owns what, and the names of API keys
// are in the clear.
//
// A box is a byte that no JSON begins with, the number of its key, and what
// seal.New makes, bound to that and to what is in it. Without that byte it was
// written by an earlier version, and is in the clear.
const (
	boxMark   = 1
	boxHeader = 1 + 8
)

// The contents of boxes.
const (
	boxRequest = "request"
	boxInput   = "input"
	boxBody    = "body" // of anything
	boxOutput  = "output"
	boxEvent   = "event"
	boxPath    = "path" // of a file in a container
)

// keys are where the keys of rows come from.
type keys struct {
	ring *keyring.Ring
	root [32]byte // without which the ring is of no use
}

// openKeys opens the ring of a database, whose keys must be those.
func openKeys(ctx context.Context, db *sql.DB, path string, root [32]byte) (_ *keys, err error) {
	ring, err := keyring.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ring.Close())
		}
	}()
	id := ring.ID()
	k := &keys{ring: ring, root: root}
	want := k.derive("ring", id[:])
	q := query.New(db)
	mark, err := q.Mark(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return k, q.SetMark(ctx, want[:])
	}
	if err == nil && !hmac.Equal(mark, want[:]) {
		err = fmt.Errorf("its content was sealed with other keys than those in %s and of this server; restore the database, the file of keys and the server's key from one copy", path)
	}
	return k, err
}

func (k *keys) derive(what string, from ...[]byte) (sum [32]byte) {
	h := hmac.New(sha256.New, k.root[:])
	h.Write([]byte("berth store " + what + "\x00"))
	for _, b := range from {
		h.Write(b)
	}
	h.Sum(sum[:0])
	return sum
}

// A rowKey is the key of a row and of what belongs to it. The zero value is that of
// rows in the clear.
type rowKey struct {
	number int64
	secret [32]byte
	aead   cipher.AEAD
}

// new returns the key of a new row.
func (k *keys) new() (rowKey, error) {
	n, part, err := k.ring.New()
	if errors.Is(err, os.ErrClosed) {
		return rowKey{}, errClosed
	}
	if err != nil {
		return rowKey{}, err
	}
	return k.row(n, part), nil
}

// get returns the key of a row by its number.
func (k *keys) get(n int64) (rowKey, error) {
	if n == 0 {
		return rowKey{}, nil
	}
	part, err := k.ring.Get(n)
	if errors.Is(err, keyring.ErrErased) {
		return rowKey{}, sql.ErrNoRows // somebody deletes the row just now
	}
	if err != nil {
		return rowKey{}, err
	}
	return k.row(n, part), nil
}

func (k *keys) row(n int64, part keyring.Key) rowKey {
	secret := k.derive("row", binary.BigEndian.AppendUint64(nil, uint64(n)), part[:])
	return rowKey{n, secret, seal.New(secret)}
}

// seal makes a box.
func (r rowKey) seal(content string, plain []byte) []byte {
	if r.number == 0 {
		return plain
	}
	box := make([]byte, 0, boxHeader+len(plain)+r.aead.Overhead())
	box = binary.BigEndian.AppendUint64(append(box, boxMark), uint64(r.number))
	return r.aead.Seal(box, nil, plain, append([]byte(content), box...))
}

// sealJSON makes a box of a value.
func (r rowKey) sealJSON(content string, v any) ([]byte, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return r.seal(content, plain), nil
}

// keyOf returns the number of a box's key.
func keyOf(box []byte) int64 {
	if len(box) < boxHeader || box[0] != boxMark {
		return 0
	}
	return int64(binary.BigEndian.Uint64(box[1:]))
}

// An opener opens boxes, of which those of one row are mostly together. It is not
// for concurrent use.
type opener struct {
	keys *keys
	last rowKey
}

func (d *DB) opener() *opener { return &opener{keys: d.keys} }

// of returns the key of what is in the box.
func (o *opener) of(box []byte) (_ rowKey, err error) {
	if n := keyOf(box); n != o.last.number {
		o.last, err = o.keys.get(n)
	}
	return o.last, err
}

// open returns what is in a box, which it overwrites. If its key is erased, the error is sql.ErrNoRows, as
// if the row were gone already.
func (o *opener) open(content string, box []byte) ([]byte, error) {
	key, err := o.of(box)
	if err != nil || key.number == 0 {
		return box, err
	}
	header := box[:boxHeader]
	plain, err := key.aead.Open(box[boxHeader:boxHeader], nil, box[boxHeader:], append([]byte(content), header...))
	if err != nil {
		// The key may have been erased since it was fetched, but not changed.
		return nil, fmt.Errorf("sqlite: what key %d seals is damaged", key.number)
	}
	return plain, nil
}

// openJSON reads a value out of a box.
func (o *opener) openJSON(content string, box []byte, v any) error {
	plain, err := o.open(content, box)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, v)
}

// hideName returns what stands for a container's name where containers are looked
// up by it.
func (k *keys) hideName(p berth.ProjectID, name string) string {
	if name == "" {
		return ""
	}
	sum := k.derive("container name", []byte(p), []byte{0}, []byte(name))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// hidePath returns what stands for the path of a file in a container with this key
// where files are looked up by it, and its box.
func (r rowKey) hidePath(path string) (hidden string, box []byte) {
	if r.number == 0 {
		return path, []byte{}
	}
	h := hmac.New(sha256.New, r.secret[:])
	h.Write([]byte("path\x00" + path))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)), r.seal(boxPath, []byte(path))
}

// path is the reverse of hidePath.
func (o *opener) path(hidden string, box []byte) (string, error) {
	if len(box) == 0 {
		return hidden, nil
	}
	path, err := o.open(boxPath, box)
	return string(path), err
}
