package server

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

// contentKinds are the kinds of contents of blobs: the names of their directories in the state
// directory, or of their sections in a bucket.
var contentKinds = []string{"files", "uploads", "skills", "snapshots"}

// contents are the contents of all blobs of a state: in the state directory, or in a bucket.
type contents struct {
	state  string
	bucket *remote.Bucket // nil: the state directory
}

// open opens the contents of a kind.
func (c *contents) open(kind string) (blob.Storage, error) {
	if c.bucket != nil {
		return c.bucket.Section(kind), nil
	}
	return openDirectory(c.state, kind)
}

// openDirectory opens the contents of a kind in a state directory.
func openDirectory(state, kind string) (blob.Storage, error) {
	return blob.OpenDirectory(filepath.Join(state, kind))
}

// A place is where the contents of a state are. Its record in the store keeps a server from
// looking for them elsewhere.
type place struct {
	State string `json:"state"` // id of the state, in the owner file of its bucket
	URL   string `json:"url"`   // of the bucket; empty for the state directory

	// Claimed means that the bucket had the state's owner file. A bucket without one is then
	// not the state's.
	Claimed bool `json:"claimed"`
}

// where describes the place for people, without parameters.
func (p place) where() string {
	if l, err := remote.Parse(p.URL); err == nil {
		return l.String()
	}
	return "its directory"
}

var placeKey = store.ObjectKey{Kind: store.KindBlobs, ID: "place"}

const house berth.ProjectID = "" // has no key, so that no client reads its objects

// readPlace returns the place of a state. Without a record it is the state directory.
func readPlace(ctx context.Context, db store.Objects) (p place, err error) {
	o, err := db.GetObject(ctx, house, placeKey)
	if errors.Is(err, store.ErrNotFound) {
		return place{}, nil
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
func savePlace(ctx context.Context, db store.Objects, p place) error {
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

// openContents opens the contents of a state where they are.
func openContents(ctx context.Context, db store.Objects, state string) (*contents, error) {
	p, err := readPlace(ctx, db)
	if err != nil {
		return nil, err
	}
	return openPlace(p, state, false)
}

// openPlace opens the contents at a place. It does not contact the service of a bucket.
func openPlace(p place, state string, claim bool) (*contents, error) {
	if p.URL == "" {
		return &contents{state: state}, nil
	}
	at, err := remote.Parse(p.URL)
	if err != nil {
		return nil, fmt.Errorf("blobs: %w", err)
	}
	bucket, err := remote.Open(remote.Options{At: at, Owner: p.State, Claim: claim})
	if err != nil {
		return nil, err
	}
	return &contents{state: state, bucket: bucket}, nil
}

// checkTime bounds the first contact with a bucket. A server starts without its bucket.
const checkTime = 10 * time.Second

// adoptContents opens the contents of a state where the configuration says. A new state begins
// there. If the state's contents are elsewhere, or the bucket is another state's, it returns an error.
func adoptContents(ctx context.Context, db store.Objects, state, url string, log *slog.Logger) (*contents, error) {
	is, err := readPlace(ctx, db)
	if err != nil {
		return nil, err
	}
	want := place{State: is.State, URL: url, Claimed: is.Claimed && url != ""}
	if want.where() != is.where() {
		if is.URL != "" {
			return nil, fmt.Errorf("blobs: the blobs of this state are in %s, not in %s; configure that", is.where(),
				want.where())
		}
		some, err := hasContents(state)
		if err != nil {
			return nil, err
		}
		if some {
			return nil, fmt.Errorf("blobs: the blobs of this state are in its directory, not in %s", want.where())
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
	c, err := openPlace(want, state, !want.Claimed)
	if err != nil || c.bucket == nil {
		return c, err
	}
	checking, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	switch err := c.bucket.Check(checking); {
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
			c.bucket.String(), "err", err)
		return c, nil
	}
}

// hasContents reports whether a state directory has contents of blobs.
func hasContents(state string) (bool, error) {
	for _, kind := range contentKinds {
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
