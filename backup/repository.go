// Package backup stores backups in a repository: a directory or a bucket that only the holder of a key can read.
//
// A repository has
//
//	packs/<name>       sealed chunks of files; never changed
//	backups/<name>     a sealed manifest for each backup, by its time: which chunks make which file
//	state/repository   what a wrong key is found by
//	state/writer       the server that writes; another one is refused
//
// A backup stores the chunks that the one before it does not have, in new packs, and then its manifest. A backup
// without a manifest does not exist, and its packs are removed by a later Prune. A pack is removed when the manifests
// of all backups that use it are.
package backup

import (
	"bytes"
	"context"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/berth-run/berth/blob"
	"github.com/berth-run/berth/internal/seal"
)

// format is the format of repositories that this version writes, and the latest that it reads.
const format = 1

// Errors of a repository.
var (
	ErrKey     = errors.New("the repository was made with another key")
	ErrWriter  = errors.New("another server writes to the repository")
	ErrDamaged = errors.New("the repository is damaged")
	ErrMissing = errors.New("there is no repository")
)

// A Key opens a repository.
type Key [32]byte

// NewKey returns a random key.
func NewKey() (k Key) {
	rand.Read(k[:]) // never fails
	return k
}

// ParseKey parses a key as String writes it.
func ParseKey(text string) (k Key, err error) {
	raw, err := hex.DecodeString(strings.TrimSpace(text))
	if err != nil || len(raw) != len(k) {
		return k, fmt.Errorf("the key of backups is not %d hexadecimal digits", 2*len(k))
	}
	return Key(raw), nil
}

// String returns the key in hexadecimal digits.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Owner returns the name of the repository that the key opens. It tells nothing about the key.
func (k Key) Owner() string { return "backup_" + hex.EncodeToString(k.derive("owner", nil))[:32] }

// derive returns a key for one purpose.
func (k Key) derive(purpose string, data []byte) []byte {
	mac := hmac.New(sha256.New, k[:])
	mac.Write([]byte(purpose + "\x00"))
	mac.Write(data)
	return mac.Sum(nil)
}

// A Place is where the parts of a repository are.
type Place struct {
	Packs, Backups, State blob.Storage
	Name                  string // for people
}

// A Repository is an open repository. It must not be used concurrently.
type Repository struct {
	at     Place
	key    Key
	ids    Key         // of chunks
	chunks cipher.AEAD // under a random nonce: the same chunk may be stored again, packed in another way
	texts  cipher.AEAD // manifests and state

	packs map[string][]string // used by the backups that were read, by name
}

// A header is the content of state/repository. A wrong key does not open it.
type header struct {
	Format int `json:"format"`
}

// Open opens a repository. With create it makes one in an empty place. It returns ErrMissing if there is none, and
// ErrKey if the key is that of another one.
func Open(ctx context.Context, at Place, key Key, create bool) (*Repository, error) {
	r := &Repository{at: at, key: key, ids: Key(key.derive("chunk ids", nil)),
		chunks: seal.New(Key(key.derive("chunks", nil))), texts: seal.New(Key(key.derive("manifests", nil))),
		packs: map[string][]string{}}
	var h header
	err := r.readState(ctx, "repository", &h)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w in %s", ErrMissing, at.Name)
		if create {
			err = r.create(ctx)
		}
		h = header{format}
	}
	if err != nil {
		return nil, err
	}
	if h.Format > format {
		return nil, fmt.Errorf("%s was written by a later version of Berth", at.Name)
	}
	return r, nil
}

// create makes a repository in an empty place.
func (r *Repository) create(ctx context.Context) error {
	for _, part := range []blob.Storage{r.at.Backups, r.at.Packs} {
		for _, err := range part.All(ctx) {
			if err == nil {
				err = fmt.Errorf("%w: %s has backups, but its file state/repository is lost", ErrDamaged, r.at.Name)
			}
			return err
		}
	}
	return r.writeState(ctx, "repository", header{format})
}

// maxState is the size of the largest file of the part state.
const maxState = 64 << 10

// readState reads a sealed file of the part state. It returns ErrKey if the key does not open it.
func (r *Repository) readState(ctx context.Context, name string, into any) error {
	sealed, err := readWhole(ctx, r.at.State, name, maxState)
	if err != nil {
		return err
	}
	text, err := r.open("state/"+name, sealed)
	if err != nil {
		return fmt.Errorf("%s: %w", r.at.Name, ErrKey)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("decode state/%s: %w", name, err)
	}
	return nil
}

func (r *Repository) writeState(ctx context.Context, name string, from any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return writeWhole(ctx, r.at.State, name, r.seal("state/"+name, text))
}

// seal seals a text for the place that name is.
func (r *Repository) seal(name string, text []byte) []byte {
	return r.texts.Seal(nil, nil, text, []byte(name))
}

func (r *Repository) open(name string, sealed []byte) ([]byte, error) {
	text, err := r.texts.Open(nil, nil, sealed, []byte(name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, ErrDamaged)
	}
	return text, nil
}

// A Writer names the server that writes to a repository. Only one does.
type Writer struct {
	ID    string    `json:"id"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// Claim makes a server the writer if there is none, or with take in place of another one, which is refused from then
// on. It returns ErrWriter for another server.
func (r *Repository) Claim(ctx context.Context, w Writer, take bool) error {
	if take {
		return r.writeState(ctx, "writer", w)
	}
	err := r.check(ctx, w.ID)
	if errors.Is(err, fs.ErrNotExist) {
		if err = r.writeState(ctx, "writer", w); err == nil {
			err = r.check(ctx, w.ID) // two may write it
		}
	}
	return err
}

// check returns ErrWriter unless a server is the writer.
func (r *Repository) check(ctx context.Context, id string) error {
	var is Writer
	if err := r.readState(ctx, "writer", &is); err != nil {
		return fmt.Errorf("read the writer of %s: %w", r.at.Name, err)
	}
	if is.ID != id {
		return fmt.Errorf("%w: %s belongs to a server on %s since %s", ErrWriter, r.at.Name, is.Host,
			is.Since.Format(time.RFC3339))
	}
	return nil
}

// readWhole reads a content of limited size.
func readWhole(ctx context.Context, from blob.Storage, name string, limit int64) ([]byte, error) {
	in, err := from.Open(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("read %s: %w: it has more than %d bytes", name, ErrDamaged, limit)
	}
	return text, nil
}

func writeWhole(ctx context.Context, to blob.Storage, name string, text []byte) error {
	err := to.Write(ctx, name, func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(text))
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
