package container

import (
	"context"
	"errors"
	"io"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/seal"
)

// A contentCopy copies the content of a container into the sandbox of its fork.
type contentCopy struct {
	ctx    context.Context // of the request; ends with the source
	from   *instance       // held by the caller of Fork
	memory bool            // with the running processes
	files  []*berth.ContainerFile
	shared *seal.Spool // its content, which other forks of the same request get too; or nil
	failed error       // the error of reading the source, if any; valid when the fork has started or ended
}

// errCopyEnded is the error of writing to a fork that reads no more.
var errCopyEnded = errors.New("the fork reads no more")

// open starts to read the source. write writes its content. The reader's Close returns when
// write has returned.
func (c *contentCopy) open(write func(io.Writer) error) io.ReadCloser {
	r, w := io.Pipe()
	o := &copyReader{PipeReader: r, done: make(chan struct{})}
	c.failed = nil
	go func() {
		defer close(o.done)
		err := write(w)
		if err != nil && !errors.Is(err, errCopyEnded) {
			c.failed = err
		}
		w.CloseWithError(err)
	}()
	return o
}

type copyReader struct {
	*io.PipeReader
	done chan struct{}
}

func (o *copyReader) Close() error {
	_ = o.CloseWithError(errCopyEnded) // never fails
	<-o.done
	return nil
}

// bind returns ctx, which also ends with the request of the copying.
func (c *contentCopy) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
