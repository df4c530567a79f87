package guest

import (
	"context"
	"errors"
	"io"
	"iter"

	"connectrpc.com/connect"

	pb "github.com/berth-run/berth/guest/guestpb/filesystem"
)

// Watch yields when it has started to watch the directory, and then after each change at or
// below it. It ends after an error.
func (c *Client) Watch(ctx context.Context, dir string) iter.Seq[error] {
	return func(yield func(error) bool) {
		stream, err := c.files.WatchDir(ctx, connect.NewRequest(&pb.WatchDirRequest{Path: dir, Recursive: true}))
		if err != nil {
			yield(asFileError(err))
			return
		}
		defer stream.Close()
		for stream.Receive() {
			if stream.Msg().GetKeepalive() == nil && !yield(nil) {
				return
			}
		}
		err = stream.Err()
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		yield(err)
	}
}
