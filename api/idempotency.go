package api

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/sse"
	"github.com/berth-run/berth/store"
)

// With the header Idempotency-Key a POST is done once: who sends it again, to the
// same path with the same body, gets the first answer again. What is kept is the
// id of the response that was asked for, which the engine makes once and the
// journal tells again; of any other request the answer itself, sealed with the key,
// which is not kept. What failed may be done again.
const (
	idempotencyKey = "Idempotency-Key"
	// KindIdempotency is what is kept of requests with an Idempotency-Key.
	KindIdempotency store.Kind = "idempotency"

	idempotencyTime   = 24 * time.Hour // that an answer is kept
	idempotencyLength = 255            // of a key, in bytes
	idempotencyAnswer = 8 << 20        // the largest answer that is kept, in bytes
)

// namesResponse are the paths whose handlers make one response, of the caller's
// name for it.
var namesResponse = map[string]bool{"/v1/responses": true}

// A kept is the body of an object of KindIdempotency.
type kept struct {
	Fingerprint string           `json:"fingerprint"`        // of the request's body
	Response    berth.ResponseID `json:"response,omitempty"` // that was asked for; or:
	Status      int              `json:"status,omitempty"`
	ContentType string           `json:"content_type,omitempty"`
	Answer      []byte           `json:"answer,omitempty"` // sealed
}

// once runs a handler unless it has answered to the same key before.
func (s *server) once(x *exchange, r *http.Request, c berth.Caller, h handler) error {
	name := r.Header.Get(idempotencyKey)
	if len(name) > idempotencyLength || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return berth.Errorf(berth.CodeInvalid, "Invalid '%s' header: it must be at most %d characters of ASCII.", idempotencyKey, idempotencyLength)
	}
	sum := sha256.Sum256([]byte(r.URL.Path + "\x00" + name))
	key := store.ObjectKey{Kind: KindIdempotency, ID: hex.EncodeToString(sum[:])}
	sealer := newSealer(name)
	print, err := s.fingerprint(x, r)
	if err != nil {
		return err
	}
	if namesResponse[r.URL.Path] {
		return s.onceNamed(x, r, c, key, print.sum(), h)
	}
	done, err := s.attempts.begin(r.Context(), attempt{c.Project, key})
	if err != nil {
		return err
	}
	defer done()
	defer print.close()
	before, err := s.kept(r.Context(), c.Project, key)
	if err != nil {
		return err
	}
	if before != nil {
		if err := print.finish(); err != nil {
			return err
		}
		if before.Fingerprint != print.sum() {
			return errKeyReused
		}
		answer, err := sealer.open(before.Answer)
		if err != nil {
			return err
		}
		x.Header().Set("Content-Type", before.ContentType)
		x.Header().Set("X-Content-Type-Options", "nosniff")
		x.WriteHeader(before.Status)
		deliver(x, answer)
		return nil
	}
	return s.onceKept(x, r, c, key, print, sealer, h)
}

var errKeyReused = &berth.Error{Code: berth.CodeInvalid, Wire: "idempotency_key_reuse",
	Message: "This Idempotency-Key was used with another request body. Send the same body to have the first answer again, or use a new key for a new request."}

// onceNamed runs a handler that makes one response, with the name that the key's
// first request gave to it. After a failure that another attempt may mend, there
// is a new name for that.
func (s *server) onceNamed(x *exchange, r *http.Request, c berth.Caller, key store.ObjectKey, fingerprint string, h handler) error {
	name := kept{Fingerprint: fingerprint, Response: berth.ResponseID(berth.NewID(berth.PrefixResponse))}
	err := s.keep(r.Context(), c.Project, key, name)
	if errors.Is(err, store.ErrExists) {
		var before *kept
		if before, err = s.kept(r.Context(), c.Project, key); before != nil {
			name = *before
		}
	}
	if err != nil {
		return err
	}
	if name.Fingerprint != fingerprint {
		return errKeyReused
	}
	c.Response = name.Response
	failure := h(s, x, r, c)
	if failure == nil || x.status != 0 || r.Context().Err() != nil {
		return failure // it was answered, or its client was lost
	}
	if status, _ := describe(failure, ""); status < http.StatusInternalServerError && status != http.StatusTooManyRequests {
		return failure
	}
	if err := s.rename(context.WithoutCancel(r.Context()), c.Project, key, name); err != nil {
		s.Log.Error("a failed request may not be made again with its Idempotency-Key", "request_id", x.requestID, "err", err)
	}
	return failure
}

// rename gives a new name to the response of a key, unless it has another by now.
func (s *server) rename(ctx context.Context, p berth.ProjectID, key store.ObjectKey, was kept) error {
	_, err := s.Objects.UpdateObject(ctx, p, key, func(o *store.Object) error {
		var now kept
		if err := json.Unmarshal(o.Body, &now); err != nil || now.Response != was.Response {
			return err
		}
		now.Response = berth.ResponseID(berth.NewID(berth.PrefixResponse))
		var err error
		o.Body, err = json.Marshal(now)
		return err
	})
	return err
}

// onceKept runs a handler, keeps its answer and then gives it.
func (s *server) onceKept(x *exchange, r *http.Request, c berth.Caller, key store.ObjectKey, print *fingerprint, sealer sealer, h handler) error {
	buffer := &buffered{ResponseWriter: x.ResponseWriter, patience: x.patience}
	x.ResponseWriter = buffer
	defer func() {
		buffer.pass()
		x.ResponseWriter = buffer.ResponseWriter
	}()
	if err := h(s, x, r, c); err != nil {
		return err
	}
	if buffer.status/100 == 2 && !buffer.through && print.finish() == nil {
		// What was done is done, also if its client has gone by now.
		err := s.keep(context.WithoutCancel(r.Context()), c.Project, key, kept{Fingerprint: print.sum(), Status: buffer.status,
			ContentType: x.Header().Get("Content-Type"), Answer: sealer.seal(buffer.body.Bytes())})
		if err != nil {
			s.Log.Error("an answer was not kept for its Idempotency-Key", "request_id", x.requestID, "err", err)
		}
	}
	return nil
}

// kept returns what is kept of a key, nil if nothing is.
func (s *server) kept(ctx context.Context, p berth.ProjectID, key store.ObjectKey) (*kept, error) {
	o, err := s.Objects.GetObject(ctx, p, key)
	if errors.Is(err, store.ErrNotFound) || err == nil && o.ExpiresAt <= time.Now().Unix() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var k kept
	return &k, json.Unmarshal(o.Body, &k)
}

// keep saves what is kept of a key; store.ErrExists if something is kept already.
func (s *server) keep(ctx context.Context, p berth.ProjectID, key store.ObjectKey, k kept) error {
	body, err := json.Marshal(k)
	if err != nil {
		return err
	}
	now := time.Now()
	o := &store.Object{ObjectKey: key, CreatedAt: now.Unix(), ExpiresAt: now.Add(idempotencyTime).Unix(), Body: body}
	err = s.Objects.CreateObjects(ctx, p, o)
	if !errors.Is(err, store.ErrExists) {
		return err
	}
	_, err = s.Objects.UpdateObject(ctx, p, key, func(old *store.Object) error {
		if old.ExpiresAt > now.Unix() {
			return store.ErrExists
		}
		old.ExpiresAt, old.Body = o.ExpiresAt, o.Body
		return nil
	})
	return err
}

// A sealer seals answers with the key of their requests. Whoever has the store has
// the answers only if they can guess the key: what was not to be stored, or has
// been deleted since, cannot be read there.
type sealer struct{ cipher.AEAD }

func newSealer(key string) sealer {
	sum := sha256.Sum256([]byte("an answer kept for the Idempotency-Key " + key))
	block, _ := aes.NewCipher(sum[:]) // its length is right
	aead, _ := cipher.NewGCMWithRandomNonce(block)
	return sealer{aead}
}

func (s sealer) seal(answer []byte) []byte { return s.Seal(nil, nil, answer, nil) }

func (s sealer) open(sealed []byte) ([]byte, error) { return s.Open(nil, nil, sealed, nil) }

// attempts are the requests with an Idempotency-Key that are being answered. Of
// those with the same key the others wait for the first.
type attempts struct {
	mu   sync.Mutex
	live map[attempt]chan struct{}
}

type attempt struct {
	project berth.ProjectID
	key     store.ObjectKey
}

// begin waits until nobody else attempts the same. done must be called.
func (a *attempts) begin(ctx context.Context, it attempt) (done func(), err error) {
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

// A buffered answer is held back until it is whole, unless it is a stream or too
// large to be kept.
type buffered struct {
	http.ResponseWriter
	status  int
	body    bytes.Buffer
	through bool

	patience time.Duration // with a client that does not read
}

// Unwrap serves http.ResponseController, which flushes streams only.
func (b *buffered) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b *buffered) WriteHeader(status int) {
	b.status = status
	if b.Header().Get("Content-Type") == sse.ContentType {
		b.pass()
	}
}

func (b *buffered) Write(p []byte) (int, error) {
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

// pass gives what was held back, and from now on all at once.
func (b *buffered) pass() {
	if b.through {
		return
	}
	b.through = true
	if b.status == 0 {
		return
	}
	b.ResponseWriter.WriteHeader(b.status)
	out := &patientWriter{b.ResponseWriter, http.NewResponseController(b.ResponseWriter), b.patience}
	defer out.renew() // the last bytes leave after the handler
	_, _ = out.Write(b.body.Bytes())
}
