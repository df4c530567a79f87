package exchange

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/store"
)

// A POST with the header Idempotency-Key is executed once: a client that repeats it, with
// the same path and body, gets the first answer again. For a route that creates a response,
// the store holds the id of that response: the engine creates it once, and the journal has
// its events. For other routes, the store holds the answer, sealed with the key, which is
// itself not stored. A request that failed may be repeated.
//
// In a cluster, a repetition waits for the server that executes the first request. If the
// response is not in the store but in the memory of a server, the repetition is forwarded there.
const (
	idempotencyKey = "Idempotency-Key"
	// KindIdempotency is the kind of the stored objects.
	KindIdempotency = store.KindIdempotency

	idempotencyTime   = 24 * time.Hour // until a stored answer expires
	idempotencyLength = 255            // maximum length of a key in bytes
	idempotencyAnswer = 8 << 20        // maximum size of a stored answer in bytes
)

// idempotency answers requests with an Idempotency-Key.
type idempotency struct {
	objects  store.Objects
	log      *slog.Logger
	attempts attempts
}

// idempotencyRecord is the body of an object of KindIdempotency. It has a Response or an Answer.
type idempotencyRecord struct {
	Fingerprint string           `json:"fingerprint"` // of the request
	Response    berth.ResponseID `json:"response,omitempty"`
	Server      string           `json:"server,omitempty"` // that creates Response; empty without a cluster
	Status      int              `json:"status,omitempty"`
	ContentType string           `json:"content_type,omitempty"`
	Answer      []byte           `json:"answer,omitempty"` // sealed
}

// handle runs the handler of a route, unless a stored answer has the same key.
func (i *idempotency) handle(x *Exchange, r *http.Request, c berth.Caller, rt Route) error {
	name := r.Header.Get(idempotencyKey)
	if len(name) > idempotencyLength || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return berth.Errorf(berth.CodeInvalid, "Invalid '%s' header. Expected at most %d printable ASCII characters.",
			idempotencyKey, idempotencyLength)
	}
	sum := sha256.Sum256([]byte(r.URL.Path + "\x00" + name))
	key := store.ObjectKey{Kind: KindIdempotency, ID: hex.EncodeToString(sum[:])}
	print, err := x.fingerprint(r)
	if err != nil {
		return err
	}
	if rt.Is(NamesResponse) {
		return i.nameResponse(x, r, c, key, print.sum(), rt.Handle)
	}
	done, err := i.attempts.start(r.Context(), attempt{c.Project, key})
	if err != nil {
		return err
	}
	defer done()
	defer print.close()
	sealer := newSealer(name)
	release, err := x.server.Placement.Acquire(r.Context(), "once/"+string(c.Project)+"/"+key.ID)
	if err != nil {
		return err
	}
	defer release()
	before, err := i.find(r.Context(), c.Project, key)
	if err != nil {
		return err
	}
	if before == nil {
		return i.storeAnswer(x, r, c, key, print, sealer, rt.Handle)
	}
	return repeat(x, before, print, sealer)
}

// repeat sends a stored answer again. It returns errKeyReused if the request differs.
func repeat(x *Exchange, before *idempotencyRecord, print *fingerprint, sealer sealer) error {
	if err := print.finish(); err != nil {
		return err
	}
	if before.Fingerprint != print.sum() {
		return errKeyReused
	}
	answer, err := sealer.open(before.Answer)
	if err != nil {
		return fmt.Errorf("open stored answer: %w", err)
	}
	x.Header().Set("Content-Type", before.ContentType)
	x.Header().Set("X-Content-Type-Options", "nosniff")
	x.WriteHeader(before.Status)
	deliver(x, answer)
	return nil
}

var errKeyReused = &berth.Error{Code: berth.CodeInvalid, Wire: "idempotency_key_reuse",
	Message: "This Idempotency-Key was used with a different request body. Send the same body to get the first answer again, or use a new key for a new request."}

// nameResponse runs a handler that creates one response, with the response id that is
// stored for the key. If the handler fails and a retry may succeed, nameResponse stores a
// new id for the retry.
func (i *idempotency) nameResponse(x *Exchange, r *http.Request, c berth.Caller, key store.ObjectKey,
	fingerprint string, h Handler) error {
	name := idempotencyRecord{Fingerprint: fingerprint, Response: berth.ResponseID(berth.NewID(berth.PrefixResponse)),
		Server: x.server.Placement.Self()}
	err := i.save(r.Context(), c.Project, key, name)
	if errors.Is(err, store.ErrExists) {
		var before *idempotencyRecord
		if before, err = i.find(r.Context(), c.Project, key); before != nil {
			name = *before
		}
	}
	if err != nil {
		return err
	}
	if name.Fingerprint != fingerprint {
		return errKeyReused
	}
	if server, err := i.creator(x, r, c.Project, key, name); err != nil {
		return err
	} else if server != "" {
		return x.server.Placement.Forward(x, x.again(r), &c, server)
	}
	c.Response = name.Response
	x.sending = func(ctx context.Context, server string) error { return i.assign(ctx, c.Project, key, name, server) }
	failure := x.server.run(x, r, c, h)
	if failure == nil || x.status != 0 || r.Context().Err() != nil {
		return failure // it was answered, or the client is gone
	}
	if status, _ := Describe(failure, ""); status < http.StatusInternalServerError &&
		status != http.StatusTooManyRequests {
		return failure
	}
	if err := i.rename(context.WithoutCancel(r.Context()), c.Project, key, name); err != nil {
		i.log.Error("failed to release the Idempotency-Key of a failed request", "request_id", x.requestID, "err", err)
	}
	return failure
}

// creator returns the other server that a repeated request must be forwarded to: it has the
// response of the key in its memory only. If that server is dead, this one takes its place.
func (i *idempotency) creator(x *Exchange, r *http.Request, p berth.ProjectID, key store.ObjectKey,
	name idempotencyRecord) (server string, err error) {
	placement := x.server.Placement
	if x.forwarded || name.Server == placement.Self() {
		return "", nil
	}
	place, err := placement.Where(r.Context(), cluster.Object{Project: p, Response: name.Response}, cluster.Use)
	if err != nil || place.Stored {
		return "", err // every server can repeat it
	}
	alive, err := placement.Alive(r.Context(), name.Server)
	if err != nil {
		return "", err
	}
	if alive {
		return name.Server, nil
	}
	server = placement.Self()
	err = i.change(r.Context(), p, key, name, func(now *idempotencyRecord) {
		if now.Server == name.Server {
			now.Server = placement.Self()
		}
		server = now.Server // another one may have been faster
	})
	if server == placement.Self() {
		server = ""
	}
	return server, err
}

// assign stores which server creates the response of a key.
func (i *idempotency) assign(ctx context.Context, p berth.ProjectID, key store.ObjectKey, name idempotencyRecord,
	server string) error {
	return i.change(ctx, p, key, name, func(now *idempotencyRecord) { now.Server = server })
}

// rename stores a new response id for a key, unless another request has already done so.
func (i *idempotency) rename(ctx context.Context, p berth.ProjectID, key store.ObjectKey, was idempotencyRecord) error {
	return i.change(ctx, p, key, was, func(now *idempotencyRecord) {
		now.Response = berth.ResponseID(berth.NewID(berth.PrefixResponse))
	})
}

// change changes the stored value of a key, unless it names another response than was.
func (i *idempotency) change(ctx context.Context, p berth.ProjectID, key store.ObjectKey, was idempotencyRecord,
	f func(*idempotencyRecord)) error {
	_, err := i.objects.UpdateObject(ctx, p, key, func(o *store.Object) error {
		var now idempotencyRecord
		if err := json.Unmarshal(o.Body, &now); err != nil {
			return fmt.Errorf("decode key: %w", err)
		}
		if now.Response != was.Response {
			return nil
		}
		f(&now)
		var err error
		o.Body, err = json.Marshal(now)
		return err
	})
	return err
}

// storeAnswer runs a handler, stores its answer and then sends it.
func (i *idempotency) storeAnswer(x *Exchange, r *http.Request, c berth.Caller, key store.ObjectKey, print *fingerprint,
	sealer sealer, h Handler) error {
	buffer := &bufferedWriter{ResponseWriter: x.ResponseWriter, patience: x.server.Limits.Patience}
	x.ResponseWriter = buffer
	defer func() {
		buffer.pass()
		x.ResponseWriter = buffer.ResponseWriter
	}()
	if err := x.server.run(x, r, c, h); err != nil {
		return err
	}
	if buffer.status/100 == 2 && !buffer.through && print.finish() == nil {
		// Store the answer even if the client is gone: the request has been executed.
		err := i.save(context.WithoutCancel(r.Context()), c.Project, key, idempotencyRecord{Fingerprint: print.sum(),
			Status:      buffer.status,
			ContentType: x.Header().Get("Content-Type"), Answer: sealer.seal(buffer.body.Bytes())})
		if err != nil {
			i.log.Error("failed to store an answer for its Idempotency-Key", "request_id", x.requestID, "err", err)
		}
	}
	return nil
}

// find returns the stored value of a key, or nil.
func (i *idempotency) find(ctx context.Context, p berth.ProjectID, key store.ObjectKey) (*idempotencyRecord, error) {
	o, err := i.objects.GetObject(ctx, p, key)
	if errors.Is(err, store.ErrNotFound) || err == nil && o.ExpiresAt <= time.Now().Unix() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var k idempotencyRecord
	if err := json.Unmarshal(o.Body, &k); err != nil {
		return nil, fmt.Errorf("decode key: %w", err)
	}
	return &k, nil
}

// save stores k for a key. It returns store.ErrExists if the key has a value that has not
// expired.
func (i *idempotency) save(ctx context.Context, p berth.ProjectID, key store.ObjectKey, k idempotencyRecord) error {
	body, err := json.Marshal(k)
	if err != nil {
		return err
	}
	now := time.Now()
	o := &store.Object{ObjectKey: key, CreatedAt: now.Unix(), ExpiresAt: now.Add(idempotencyTime).Unix(), Body: body}
	err = i.objects.CreateObjects(ctx, p, o)
	if !errors.Is(err, store.ErrExists) {
		return err
	}
	_, err = i.objects.UpdateObject(ctx, p, key, func(old *store.Object) error {
		if old.ExpiresAt > now.Unix() {
			return store.ErrExists
		}
		old.ExpiresAt, old.Body = o.ExpiresAt, o.Body
		return nil
	})
	return err
}
