// Package state has the state directory of a server: its database, its keys, its lock, where its blobs are, and the
// commands that back it up, restore it and copy parts of it elsewhere.
package state

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob"
	"github.com/berth-run/berth/blob/remote"
	"github.com/berth-run/berth/store"
)

// BlobKinds are the kinds of contents of blobs: the names of their directories in the state
// directory, or of their sections in a bucket.
var BlobKinds = []string{"files", "uploads", "skills", "snapshots"}

// Blobs are the contents of all blobs of a state: in the state directory, or in a bucket.
type Blobs struct {
	dir    string
	Bucket *remote.Bucket // nil: the state directory
}

// Open opens the contents of a kind.
func (c *Blobs) Open(kind string) (blob.Storage, error) {
	if c.Bucket != nil {
		return c.Bucket.Section(kind), nil
	}
	return openDirectory(c.dir, kind)
}

// openDirectory opens the contents of a kind in a state directory.
func openDirectory(state, kind string) (blob.Storage, error) {
	return blob.OpenDirectory(filepath.Join(state, kind))
}

// A Place is where the contents of a state are. Its record in the store keeps a server from
// looking for them elsewhere.
type Place struct {
	State string `json:"state"` // id of the state, in the owner file of its bucket
	URL   string `json:"url"`   // of the bucket; empty for the state directory

	// Claimed means that the bucket had the state's owner file. A bucket without one is then
	// not the state's.
	Claimed bool `json:"claimed"`
}

// Where describes the place for people, without parameters.
func (p Place) Where() string {
	if l, err := remote.Parse(p.URL); err == nil {
		return l.String()
	}
	return "its directory"
}

var placeKey = store.ObjectKey{Kind: store.KindBlobs, ID: "place"}

const house berth.ProjectID = "" // has no key, so that no client reads its objects

// ReadPlace returns the place of a state. Without a record it is the state directory.
func ReadPlace(ctx context.Context, db store.Objects) (p Place, err error) {
	o, err := db.GetObject(ctx, house, placeKey)
	if errors.Is(err, store.ErrNotFound) {
		return Place{}, nil
	}
	if err != nil {
		return p, fmt.Errorf("read place of blobs: %w", err)
	}
	if err := json.Unmarshal(o.Body, &p); err != nil {
		return p, fmt.Errorf("decode place of blobs: %w", err)
	}
	return p, nil
}

// savePlace saves the place of a state.
func savePlace(ctx context.Context, db store.Objects, p Place) error {
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode place of blobs: %w", err)
	}
	_, err = db.UpdateObject(ctx, house, placeKey, func(o *store.Object) error {
		o.Body = body
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		err = db.CreateObjects(ctx, house, &store.Object{ObjectKey: placeKey, CreatedAt: time.Now().Unix(), Body: body})
	}
	if err != nil {
		return fmt.Errorf("save place of blobs: %w", err)
	}
	return nil
}

func newStateID() string { return "state_" + strings.ToLower(rand.Text()) }

// OpenBlobs opens the contents of a state where they are.
func OpenBlobs(ctx context.Context, db store.Objects, state string) (*Blobs, error) {
	p, err := ReadPlace(ctx, db)
	if err != nil {
		return nil, err
	}
	return OpenPlace(p, state, false)
}

// OpenPlace opens the contents at a place. It does not contact the service of a bucket.
func OpenPlace(p Place, state string, claim bool) (*Blobs, error) {
	if p.URL == "" {
		return &Blobs{dir: state}, nil
	}
	at, err := remote.Parse(p.URL)
	if err != nil {
		return nil, fmt.Errorf("blobs: %w", err)
	}
	bucket, err := remote.Open(remote.Options{At: at, Owner: p.State, Claim: claim})
	if err != nil {
		return nil, err
	}
	return &Blobs{dir: state, Bucket: bucket}, nil
}

// CheckTime bounds the first contact with a bucket. A server starts without its bucket.
const CheckTime = 10 * time.Second

// AdoptBlobs opens the contents of a state where the configuration says. A new state begins
// there. If the state's contents are elsewhere, or the bucket is another state's, it returns an error.
func AdoptBlobs(ctx context.Context, db store.Objects, state, url string, log *slog.Logger) (*Blobs, error) {
	is, err := ReadPlace(ctx, db)
	if err != nil {
		return nil, err
	}
	want := Place{State: is.State, URL: url, Claimed: is.Claimed && url != ""}
	if want.Where() != is.Where() {
		if is.URL != "" {
			return nil, fmt.Errorf("blobs: the blobs of this state are in %s, not in %s; configure that", is.Where(),
				want.Where())
		}
		some, err := HasBlobs(state)
		if err != nil {
			return nil, err
		}
		if some {
			return nil, fmt.Errorf("blobs: the blobs of this state are in its directory, not in %s", want.Where())
		}
	}
	if url != "" && want.State == "" {
		want.State = newStateID()
	}
	if want != is { // before the bucket is claimed, so that no claim is forgotten
		if err := savePlace(ctx, db, want); err != nil {
			return nil, err
		}
	}
	c, err := OpenPlace(want, state, !want.Claimed)
	if err != nil || c.Bucket == nil {
		return c, err
	}
	checking, cancel := context.WithTimeout(ctx, CheckTime)
	defer cancel()
	switch err := c.Bucket.Check(checking); {
	case err == nil:
		want.Claimed = true
		return c, savePlace(ctx, db, want)
	case remote.Refused(err):
		if is.URL == "" { // the state begins elsewhere
			err = errors.Join(err, savePlace(ctx, db, is))
		}
		return nil, fmt.Errorf("blobs: the bucket, its address or the credentials are wrong: %w", remote.Cause(err))
	default:
		log.Error("the bucket of blobs cannot be reached; requests that need it fail until it can", "bucket",
			c.Bucket.String(), "err", err)
		return c, nil
	}
}

// HasBlobs reports whether a state directory has contents of blobs.
func HasBlobs(state string) (bool, error) {
	for _, kind := range BlobKinds {
		err := filepath.WalkDir(filepath.Join(state, kind), func(_ string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				return errFound
			}
			return err
		})
		switch {
		case errors.Is(err, errFound):
			return true, nil
		case err != nil && !errors.Is(err, os.ErrNotExist):
			return false, fmt.Errorf("look for %s: %w", kind, err)
		}
	}
	return false, nil
}

var errFound = errors.New("found")

// Existing returns the state directory, or its nearest parent that exists.
func Existing(state string) string {
	for dir := state; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == "/" || dir == "." {
			return dir
		}
	}
}
