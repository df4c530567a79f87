package exchange

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/sse"
)

// A sealer encrypts answers with the Idempotency-Key of their requests. Without the key,
// the store's copy of an answer is unreadable, even if the answer was not to be stored or
// its object has been deleted.
type sealer struct{ cipher.AEAD }

func newSealer(key string) sealer {
	sum := sha256.Sum256([]byte("an answer kept for the Idempotency-Key " + key))
	block, _ := aes.NewCipher(sum[:]) // the length is valid
	aead, _ := cipher.NewGCMWithRandomNonce(block)
	return sealer{aead}
}

func (s sealer) seal(answer []byte) []byte { return s.Seal(nil, nil, answer, nil) }

func (s sealer) open(sealed []byte) ([]byte, error) {
	answer, err := s.Open(nil, nil, sealed, nil)
	if err != nil {
		return nil, fmt.Errorf("open answer: %w", err)
	}
	return answer, nil
}

// attempts holds the requests with an Idempotency-Key in progress. Requests with the same
// key wait for the first.
type attempts struct {
	mu   sync.Mutex
	live map[attempt]chan struct{}
}

type attempt struct {
	project berth.ProjectID
	key     string
}

// start waits until no other request has the same key. The caller must call done.
func (a *attempts) start(ctx context.Context, it attempt) (done func(), err error) {
	for {
		a.mu.Lock()
		other := a.live[it]
		if other == nil {
			mine := make(chan struct{})
			if a.live == nil {
				a.live = map[attempt]chan struct{}{}
			}
			a.live[it] = mine
			a.mu.Unlock()
			return func() {
				a.mu.Lock()
				defer a.mu.Unlock()
				delete(a.live, it)
				close(mine)
			}, nil
		}
		a.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// bufferedWriter holds an answer back until it is complete, unless it is a stream or too large
// to be stored.
type bufferedWriter struct {
	http.ResponseWriter
	status  int
	body    bytes.Buffer
	through bool

	patience time.Duration // of writes to the client
}

// Unwrap is called by http.ResponseController, which flushes streams only.
func (b *bufferedWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b *bufferedWriter) WriteHeader(status int) {
	b.status = status
	if b.Header().Get("Content-Type") == sse.ContentType {
		b.pass()
	}
}

func (b *bufferedWriter) Write(p []byte) (int, error) {
	if b.status == 0 {
		b.WriteHeader(http.StatusOK)
	}
	if !b.through && b.body.Len()+len(p) > idempotencyAnswer {
		b.pass()
	}
	if b.through {
		return b.ResponseWriter.Write(p)
	}
	return b.body.Write(p)
}

// pass sends the buffered answer. Later writes are not buffered.
func (b *bufferedWriter) pass() {
	if b.through {
		return
	}
	b.through = true
	if b.status == 0 {
		return
	}
	b.ResponseWriter.WriteHeader(b.status)
	out := &PatientWriter{b.ResponseWriter, http.NewResponseController(b.ResponseWriter), b.patience}
	defer out.Renew() // the server sends the last bytes after the handler returns
	_, _ = out.Write(b.body.Bytes())
}
