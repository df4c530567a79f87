package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/berth-run/berth/blob/remote"
	"github.com/berth-run/berth/server/state"
)

// ExamineBucket checks that the bucket of blobs answers, and belongs to the state or to no other.
// It changes nothing in the bucket.
func ExamineBucket(ctx context.Context, dir, url string) Finding {
	f := Finding{What: "blobs"}
	is := state.Place{}
	s, err := state.OpenExisting(ctx, dir)
	switch {
	case err == nil:
		is, err = state.ReadPlace(ctx, s.Store)
		err = errors.Join(err, s.Close())
	case errors.Is(err, fs.ErrNotExist):
		err = nil // no server has started yet
	}
	want := state.Place{State: is.State, URL: url}
	var c *state.Blobs
	if err == nil {
		c, err = state.OpenPlace(want, dir, false)
	}
	var owner string
	began := time.Now()
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, state.CheckTime)
		defer cancel()
		owner, err = c.Bucket.Probe(ctx)
	}
	took := time.Since(began).Milliseconds()
	switch {
	case err != nil:
		f.Detail, f.Advice = remote.Cause(err).Error(),
			"check the address, the bucket's name, the region and the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
	case is.URL != "" && is.Where() != want.Where():
		f.Detail, f.Advice = fmt.Sprintf("the blobs of this state are in %s, not in %s", is.Where(), want.Where()),
			"correct blobs in the configuration"
	case owner != "" && owner != is.State:
		f.Detail, f.Advice = want.Where()+" belongs to another state",
			"use a bucket or a prefix of its own for each server's state"
	case owner == "":
		f.OK, f.Detail = true, fmt.Sprintf("%s answered in %d ms and is not in use yet", want.Where(), took)
	default:
		f.OK, f.Detail = true, fmt.Sprintf("%s answered in %d ms and belongs to this state", want.Where(), took)
	}
	return f
}
