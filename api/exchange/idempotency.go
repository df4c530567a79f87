package exchange

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/idempotency"
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

	idempotencyLength = 255     // maximum length of a key in bytes
	idempotencyAnswer = 8 << 20 // maximum size of a stored answer in bytes
)

// once answers requests with an Idempotency-Key.
type once struct {
	records  *idempotency.Records
	log      *slog.Logger
	attempts attempts
}

// handle runs the handler of a route, unless a stored answer has the same key.
func (i *once) handle(x *Exchange, r *http.Request, c berth.Caller, rt Route) error {
	name := r.Header.Get(idempotencyKey)
	if len(name) > idempotencyLength || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return berth.Errorf(berth.CodeInvalid, "Invalid '%s' header. Expected at most %d printable ASCII characters.",
			idempotencyKey, idempotencyLength)
	}
	sum := sha256.Sum256([]byte(r.URL.Path + "\x00" + name))
	key := hex.EncodeToString(sum[:])
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
	release, err := x.server.Placement.Acquire(r.Context(), "once/"+string(c.Project)+"/"+key)
	if err != nil {
		return err
	}
	defer release()
	before, err := i.records.Find(r.Context(), c.Project, key)
	if err != nil {
		return err
	}
	if before == nil {
		return i.storeAnswer(x, r, c, key, print, sealer, rt.Handle)
	}
	return repeat(x, before, print, sealer)
}

// repeat sends a stored answer again. It returns errKeyReused if the request differs.
func repeat(x *Exchange, before *idempotency.Record, print *fingerprint, sealer sealer) error {
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
func (i *once) nameResponse(x *Exchange, r *http.Request, c berth.Caller, key string,
	fingerprint string, h Handler) error {
	name := idempotency.Record{Fingerprint: fingerprint, Response: berth.ResponseID(berth.NewID(berth.PrefixResponse)),
		Server: x.server.Placement.Self()}
	saved, err := i.records.Save(r.Context(), c.Project, key, name)
	if err == nil && !saved {
		var before *idempotency.Record
		if before, err = i.records.Find(r.Context(), c.Project, key); before != nil {
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
		return x.server.Placement.Forward(x, x.relay.again(r), &c, server)
	}
	c.Response = name.Response
	x.relay.before = func(ctx context.Context, server string) error {
		return i.assign(ctx, c.Project, key, name, server)
	}
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
func (i *once) creator(x *Exchange, r *http.Request, p berth.ProjectID, key string,
	name idempotency.Record) (server string, err error) {
	placement := x.server.Placement
	if x.relay.arrived || name.Server == placement.Self() {
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
	err = i.records.Change(r.Context(), p, key, name.Response, func(now *idempotency.Record) {
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
func (i *once) assign(ctx context.Context, p berth.ProjectID, key string, name idempotency.Record,
	server string) error {
	return i.records.Change(ctx, p, key, name.Response, func(now *idempotency.Record) { now.Server = server })
}

// rename stores a new response id for a key, unless another request has already done so.
func (i *once) rename(ctx context.Context, p berth.ProjectID, key string, was idempotency.Record) error {
	return i.records.Change(ctx, p, key, was.Response, func(now *idempotency.Record) {
		now.Response = berth.ResponseID(berth.NewID(berth.PrefixResponse))
	})
}

// storeAnswer runs a handler, stores its answer and then sends it.
func (i *once) storeAnswer(x *Exchange, r *http.Request, c berth.Caller, key string, print *fingerprint,
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
		_, err := i.records.Save(context.WithoutCancel(r.Context()), c.Project, key, idempotency.Record{
			Fingerprint: print.sum(), Status: buffer.status, ContentType: x.Header().Get("Content-Type"),
			Answer: sealer.seal(buffer.body.Bytes())})
		if err != nil {
			i.log.Error("failed to store an answer for its Idempotency-Key", "request_id", x.requestID, "err", err)
		}
	}
	return nil
}
