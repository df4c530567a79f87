package state

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/berth-run/berth/blob/remote"
	"github.com/berth-run/berth/blob/transfer"
	"github.com/berth-run/berth/store"
)

// BlobsLocal names the directories in the state directory, as an argument of CopyBlobs and TakeBlobs.
const BlobsLocal = "local"

// A BlobsCopy is what was copied of a kind of contents.
type BlobsCopy struct {
	Kind string
	transfer.Result
}

// CopyBlobs copies the contents of the blobs of a state directory between its directories and a
// bucket, or between two buckets, and makes the state use the copy. Each of from and to is BlobsLocal
// or the URL of a bucket. A copy that was interrupted continues. It returns an error if a server uses
// the state. If it fails, the state uses the former place.
func CopyBlobs(ctx context.Context, state, from, to string) (results []BlobsCopy, err error) {
	err = withPlace(ctx, state, func(db Database, is Place) error {
		source, target, err := placesOf(is, from, to)
		if err != nil {
			return err
		}
		if target.State == "" { // saved first, so that a copy that is repeated finds its own bucket
			is.State = newStateID()
			source.State, target.State = is.State, is.State
			if err := savePlace(ctx, db, is); err != nil {
				return err
			}
		}
		results, err = copyBlobContents(ctx, state, source, target)
		if err != nil {
			return err
		}
		return savePlace(ctx, db, target)
	})
	return results, err
}

// placesOf returns the places that the arguments of a copy name.
func placesOf(is Place, from, to string) (source, target Place, err error) {
	source, err = placeOf(is, from)
	if err != nil {
		return source, target, err
	}
	target, err = placeOf(is, to)
	switch {
	case err != nil:
	case source.Where() != is.Where():
		err = fmt.Errorf("the blobs of this state are in %s, not in %s", is.Where(), source.Where())
	case source.Where() == target.Where():
		err = errors.New("both are the same place")
	}
	return source, target, err
}

// placeOf returns the place of a state's blobs that an argument names.
func placeOf(is Place, at string) (Place, error) {
	if at == BlobsLocal {
		return Place{State: is.State}, nil
	}
	if _, err := remote.Parse(at); err != nil {
		return Place{}, fmt.Errorf("a place is %q, which means the state directory, or the URL of a bucket: %w",
			BlobsLocal, err)
	}
	return Place{State: is.State, URL: at, Claimed: true}, nil
}

// copyBlobContents copies all contents from one place to another, whose bucket must be empty or belong to
// the state already.
func copyBlobContents(ctx context.Context, state string, from, to Place) ([]BlobsCopy, error) {
	source, err := OpenPlace(from, state, false)
	if err != nil {
		return nil, err
	}
	target, err := OpenPlace(to, state, true)
	if err != nil {
		return nil, err
	}
	if target.Bucket != nil {
		if err := target.Bucket.Check(ctx); err != nil {
			return nil, err
		}
	}
	var results []BlobsCopy
	for _, kind := range BlobKinds {
		r, err := copyKind(ctx, source, target, kind)
		if err != nil {
			return nil, fmt.Errorf("copy %s: %w", kind, err)
		}
		results = append(results, BlobsCopy{kind, r})
	}
	return results, nil
}

func copyKind(ctx context.Context, source, target *Blobs, kind string) (transfer.Result, error) {
	from, err := source.Open(kind)
	if err != nil {
		return transfer.Result{}, err
	}
	to, err := target.Open(kind)
	if err != nil {
		return transfer.Result{}, err
	}
	return transfer.Copy(ctx, from, to)
}

// TakeBlobs makes a state use the contents at a place, BlobsLocal or the URL of a bucket, that were
// copied there by other means, and makes it the owner of the bucket. confirm is called first with the
// id of the state that owns the bucket, or "" if none does; if it returns an error, nothing changes.
func TakeBlobs(ctx context.Context, state, at string, confirm func(owner string) error) error {
	return withPlace(ctx, state, func(db Database, is Place) error {
		if is.State == "" {
			is.State = newStateID()
		}
		to, err := placeOf(is, at)
		if err != nil {
			return err
		}
		c, err := OpenPlace(to, state, false)
		if err != nil {
			return err
		}
		owner := ""
		if c.Bucket != nil {
			if owner, err = c.Bucket.Probe(ctx); err != nil {
				return err
			}
		}
		if owner != "" && owner == is.State && to.Where() == is.Where() {
			return fmt.Errorf("%s belongs to this state already", to.Where())
		}
		if err := confirm(owner); err != nil {
			return err
		}
		if c.Bucket != nil {
			if err := c.Bucket.Take(ctx); err != nil {
				return err
			}
		}
		return savePlace(ctx, db, to)
	})
}

// withPlace calls f with the database of a state directory that no server uses, and with the place of
// its blobs.
func withPlace(ctx context.Context, state string, f func(db Database, is Place) error) error {
	if !HasDatabase(state) {
		return fmt.Errorf("the state directory %s has no database", state)
	}
	unlock, err := Lock(state)
	if err != nil {
		return err
	}
	db, err := OpenDatabase(ctx, state, Use{URL: os.Getenv(StoreVariable), Serve: true})
	if err != nil {
		return errors.Join(err, unlock())
	}
	if members, ok := db.(store.Members); ok {
		err = errInUse(ctx, members, "the database")
	}
	var is Place
	if err == nil {
		is, err = ReadPlace(ctx, db)
	}
	if err == nil {
		err = f(db, is)
	}
	return errors.Join(err, db.Close(), unlock())
}
