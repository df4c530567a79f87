package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob"
)

// unavailable returns the error for a client whose request needs the service, which failed with
// err.
func unavailable(err error) error {
	return &berth.Error{Code: berth.CodeUnavailable, Err: fmt.Errorf("%w: %w", blob.ErrUnavailable, err), RetryAfter: retryAfter,
		Message: "The storage of this server cannot be reached. Send the request again in a moment."}
}

const retryAfter = 5 * time.Second

// translate adds a step to each operation that turns failures of the service into errors for
// clients. Errors about one key, such as its absence, are returned as they are.
func (b *Bucket) translate(stack *middleware.Stack) error {
	step := middleware.InitializeMiddlewareFunc("berth.translate",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			out, meta, err := next.HandleInitialize(ctx, in)
			if err == nil {
				return out, meta, nil
			}
			err = fmt.Errorf("request to %s: %w", b, err)
			if ctx.Err() != nil || berth.ErrorCode(err) == berth.CodeUnavailable {
				return out, meta, err
			}
			switch apiCode(err) {
			case "NoSuchKey", "PreconditionFailed", "NoSuchUpload":
				return out, meta, err
			case "NotFound": // the answer to HEAD has no body that tells a key from a bucket
				if _, head := in.Parameters.(*s3.HeadObjectInput); head {
					if _, berr := b.direct.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &b.at.bucket}); berr == nil {
						return out, meta, err
					}
				}
				err = fmt.Errorf("%w: %v", errNoBucket, err) // not wrapped, since it would look like a missing key
			case "NoSuchBucket":
				err = fmt.Errorf("%w: %v", errNoBucket, err)
			}
			return out, meta, unavailable(err)
		})
	if err := stack.Initialize.Add(step, middleware.Before); err != nil {
		return fmt.Errorf("add step: %w", err)
	}
	return nil
}

var errNoBucket = errors.New("the bucket does not exist")

// guard adds a step to each operation that fails until the owner of the bucket is verified.
func (b *Bucket) guard(stack *middleware.Stack) error {
	step := middleware.InitializeMiddlewareFunc("berth.guard",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			if err := b.verify(ctx); err != nil {
				return middleware.InitializeOutput{}, middleware.Metadata{}, err
			}
			out, meta, err := next.HandleInitialize(ctx, in)
			if err != nil {
				err = fmt.Errorf("with a verified owner: %w", err)
			}
			return out, meta, err
		})
	if err := stack.Initialize.Add(step, middleware.After); err != nil {
		return fmt.Errorf("add step: %w", err)
	}
	return nil
}

// apiCode returns the code of the service's answer, or "".
func apiCode(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

// Refused reports whether the service answered and refused: waiting does not help, but a change
// of the configuration, the credentials or the bucket does.
func Refused(err error) bool {
	if errors.Is(err, ErrOwner) || errors.Is(err, errNoBucket) {
		return true
	}
	var answer interface{ HTTPStatusCode() int }
	if !errors.As(err, &answer) {
		return false
	}
	status := answer.HTTPStatusCode()
	return status >= 300 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
}

// Time limits of connections to the service.
const (
	dialTimeout   = 5 * time.Second
	headerTimeout = time.Minute // until the answer begins, after the request was sent
	stallTimeout  = time.Minute // of one read of an answer
)

// newHTTPClient returns a client that notices a service that is gone.
func newHTTPClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 3}}
	t.DialContext, t.ResponseHeaderTimeout = dialer.DialContext, headerTimeout
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 64, 64
	return &http.Client{Transport: &transport{t}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
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
	return n, unavailable(fmt.Errorf("read answer: %v", err)) // not wrapped, since io.ErrUnexpectedEOF means a damaged content
}

func (b *body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
