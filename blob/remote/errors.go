package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob"
)

// unavailable returns the error for a client whose request needs the service, which failed with
// err.
func unavailable(err error) error {
	if Refused(err) {
		return &berth.Error{Code: berth.CodeUnavailable, Err: fmt.Errorf("%w: %w", blob.ErrUnavailable, err),
			Message: "The storage of this server refuses its requests. Its operator has to correct the bucket or the credentials."}
	}
	return &berth.Error{Code: berth.CodeUnavailable, Err: fmt.Errorf("%w: %w", blob.ErrUnavailable, err),
		RetryAfter: retryAfter,
		Message:    "The storage of this server cannot be reached. Send the request again in a moment."}
}

const retryAfter = 5 * time.Second

// translate turns failures of the service into errors for clients. Errors about one object are
// returned as they are; one that does not exist is fs.ErrNotExist.
func (b *Bucket) translate(ctx context.Context, err error) error {
	if err == nil || berth.ErrorCode(err) == berth.CodeUnavailable {
		return err
	}
	err = fmt.Errorf("request to %s: %w", b, err)
	if ctx.Err() != nil {
		return err
	}
	switch apiCode(err) {
	case minio.NoSuchKey:
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case minio.PreconditionFailed, minio.NoSuchUpload:
		return err
	case minio.NoSuchBucket:
		err = fmt.Errorf("%w: %w", errNoBucket, err)
	}
	return unavailable(err)
}

var errNoBucket = errors.New("the bucket does not exist")

// apiCode returns the code of the service's answer, or "".
func apiCode(err error) string {
	answer, _ := errors.AsType[minio.ErrorResponse](err)
	return answer.Code
}

// Refused reports whether the service answered and refused: waiting does not help, but a change
// of the configuration, the credentials or the bucket does.
func Refused(err error) bool {
	if errors.Is(err, ErrOwner) || errors.Is(err, errNoBucket) {
		return true
	}
	answer, _ := errors.AsType[minio.ErrorResponse](err)
	status := answer.StatusCode
	return status >= 300 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
}

// Cause returns the operator's part of an error: without the message for clients.
func Cause(err error) error {
	if e, ok := errors.AsType[*berth.Error](err); ok && e.Err != nil {
		return e.Err
	}
	return err
}

// Time limits of connections to the service.
const (
	dialTimeout   = 5 * time.Second
	headerTimeout = time.Minute // until the answer begins, after the request was sent
	stallTimeout  = time.Minute // of one read of an answer
)

// newTransport returns a transport that notices a service that is gone.
func newTransport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	dialer := &net.Dialer{Timeout: dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second,
			Count: 3}}
	t.DialContext, t.ResponseHeaderTimeout = dialer.DialContext, headerTimeout
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 64, 64
	t.DisableCompression = true // contents do not compress
	return &transport{t}
}

// transport turns errors of reading answers into errors for clients. Without it, an answer that
// is cut off would look like a content that is too short.
type transport struct{ next http.RoundTripper }

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("send request: %w", err)
	}
	resp.Body = &body{resp.Body, ctx, cancel}
	return resp, nil
}

type body struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
}

var errStalled = errors.New("the service sent no data in time")

func (b *body) Read(p []byte) (int, error) {
	stalled := time.AfterFunc(stallTimeout, func() { b.cancel(errStalled) })
	n, err := b.ReadCloser.Read(p)
	stalled.Stop()
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if cause := context.Cause(b.ctx); errors.Is(cause, errStalled) {
		err = cause
	}
	// not wrapped, since io.ErrUnexpectedEOF means a damaged content
	return n, unavailable(fmt.Errorf("read answer: %v", err))
}

func (b *body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
