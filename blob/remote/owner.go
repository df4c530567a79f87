package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/berth-run/berth"
)

// ErrOwner means that the bucket belongs to another state, or that its owner is unknown.
var ErrOwner = errors.New("the bucket belongs to another state")

// ownerFile is the name of the owner file below the prefix.
const ownerFile = "berth-owner.json"

// An owner is the content of the owner file.
type owner struct {
	Owner string    `json:"owner"` // the id of a state
	Since time.Time `json:"since"`
}

// maxOwner is the size of the largest owner file.
const maxOwner = 4 << 10

// Time limits of checks.
const (
	checkTimeout = 15 * time.Second
	checkEvery   = time.Second // at most, after a failure
)

// verify verifies the owner unless that was done. Concurrent callers share one check.
func (b *Bucket) verify(ctx context.Context) error {
	if b.verified.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.verified.Load() {
		return nil
	}
	if b.failed != nil && time.Since(b.failedAt) < checkEvery {
		return b.failed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	return b.check(ctx)
}

// Check reads the owner file. With Options.Claim it creates one in an empty bucket. It returns ErrOwner if the
// bucket belongs to another state; from then on all operations fail, until a Check succeeds. Any
// other error means that the service cannot be reached or refuses.
func (b *Bucket) Check(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.check(ctx)
}

// check is Check for a caller that holds b.mu.
func (b *Bucket) check(ctx context.Context) (err error) {
	defer func() {
		if err != nil && ctx.Err() != nil && berth.ErrorCode(err) != berth.CodeUnavailable {
			err = unavailable(err)
		}
		b.failed, b.failedAt = err, time.Now()
	}()
	found, err := b.readOwner(ctx)
	if err == nil && found == nil {
		if !b.claims {
			err = fmt.Errorf("%w: %s has no file %s any more", ErrOwner, b, ownerFile)
		} else {
			found, err = b.claim(ctx)
		}
	}
	if err == nil && found.Owner != b.owner {
		err = fmt.Errorf("%w: %s belongs to %q since %s; this state is %q", ErrOwner, b, found.Owner,
			found.Since.Format(time.RFC3339), b.owner)
	}
	switch {
	case errors.Is(err, ErrOwner):
		b.verified.Store(false)
		return unavailable(err)
	case err != nil:
		return fmt.Errorf("check owner of %s: %w", b, err)
	}
	b.verified.Store(true)
	return nil
}

// readOwner reads the owner file. It returns nil if there is none.
func (b *Bucket) readOwner(ctx context.Context) (*owner, error) {
	body, _, _, err := b.core().GetObject(ctx, b.at.bucket, b.at.prefix+ownerFile, minio.GetObjectOptions{})
	if apiCode(err) == minio.NoSuchKey {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read owner file: %w", b.translate(ctx, err))
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxOwner))
	if err != nil {
		return nil, fmt.Errorf("read owner file: %w", err)
	}
	found := &owner{}
	if err := json.Unmarshal(text, found); err != nil || found.Owner == "" {
		return nil, fmt.Errorf("%w: its file %s is not an owner file", ErrOwner, ownerFile)
	}
	return found, nil
}

// Probe reads the owner file and changes nothing. It returns the id of the state that owns the
// bucket, or "" if none does.
func (b *Bucket) Probe(ctx context.Context) (string, error) {
	found, err := b.readOwner(ctx)
	if err != nil || found == nil {
		return "", err
	}
	return found.Owner, nil
}

// claim creates the owner file in an empty bucket. It returns the owner that the bucket then has:
// another one if another server was faster.
func (b *Bucket) claim(ctx context.Context) (*owner, error) {
	listing, stop := context.WithCancel(ctx)
	defer stop()
	listing, _ = newListing(listing)
	for o := range b.client.ListObjectsIter(listing, b.at.bucket, minio.ListObjectsOptions{Prefix: b.at.prefix,
		Recursive: true, MaxKeys: 1}) {
		if o.Err != nil {
			return nil, fmt.Errorf("list objects: %w", b.translate(ctx, o.Err))
		}
		return nil, fmt.Errorf("%w: %s is not empty and has no %s", ErrOwner, b, ownerFile)
	}
	if err := b.writeOwner(ctx, false); err != nil && apiCode(err) != minio.PreconditionFailed {
		return nil, err
	}
	found, err := b.readOwner(ctx)
	if err == nil && found == nil {
		err = errors.New("the owner file is gone right after its creation")
	}
	return found, err
}

// Take makes the state the owner of the bucket, also if another one owned it. Servers of the
// former owner stop using the bucket when they next check it.
func (b *Bucket) Take(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.writeOwner(ctx, true); err != nil {
		return err
	}
	return b.check(ctx)
}

func (b *Bucket) writeOwner(ctx context.Context, replace bool) error {
	text, err := json.Marshal(owner{Owner: b.owner, Since: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return fmt.Errorf("encode owner file: %w", err)
	}
	opts := b.put("application/json")
	if !replace {
		opts.SetMatchETagExcept("*")
	}
	if err := b.putWhole(ctx, b.at.prefix+ownerFile, text, opts); err != nil {
		return fmt.Errorf("write owner file: %w", err)
	}
	return nil
}
