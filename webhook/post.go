package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/egress/proxy"
)

const (
	postTime  = 10 * time.Second // timeout of one attempt
	maxAnswer = 64 << 10         // bytes of an answer's body to read and discard
)

var errPrivate = errors.New("the address is not public")

// reachable reports whether an endpoint of a project may have an address.
func reachable(a netip.Addr) bool { return egress.Public(a) && !egress.Own(a) }

// newClient returns a client that follows no redirects. If public is true, it connects
// to public addresses only, except those of this machine: a firewall in front of it does
// not see connections from here.
func newClient(public bool, proxies *proxy.Selector) *http.Client {
	dialer := &net.Dialer{Timeout: postTime}
	options := []proxy.Option{proxy.WithDialer(dialer.DialContext)}
	if public {
		// The environment's proxy would hide the address from Control. The configuration's is trusted to refuse names
		// that lead to private addresses.
		options = append(options, proxy.WithoutEnvironment(), proxy.WithGuard(egress.PublicTarget))
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil || !reachable(to.Addr()) {
				return errPrivate
			}
			return nil
		}
	}
	transport := proxies.Transport(options...)
	transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = atOnce, time.Minute
	return &http.Client{Timeout: postTime, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// post makes the next attempt of a delivery to an endpoint and returns the status of its answer.
func (s *Service) post(ctx context.Context, e *endpoint, d *Delivery) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(d.Payload))
	if err != nil {
		return 0, fmt.Errorf("create request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Berth webhooks")
	if e.OfSandboxes() {
		e.signSandboxEvent(req.Header, d)
	} else {
		e.sign(req.Header, d, time.Now())
	}
	client := s.public
	if e.Anywhere {
		client = s.anywhere
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // so that the connection can be reused
	if resp.StatusCode/100 != 2 {
		return resp.StatusCode, fmt.Errorf("the endpoint answered %s", resp.Status)
	}
	return resp.StatusCode, nil
}

// Test sends a sample event to an endpoint once. It returns the HTTP status of the answer.
func (s *Service) Test(ctx context.Context, p berth.ProjectID, id berth.WebhookID, kind berth.EventType) (status int,
	err error) {
	e, err := s.get(ctx, p, id)
	if err != nil {
		return 0, err
	}
	known, _ := (&EndpointRequest{Sandboxes: e.OfSandboxes()}).types()
	if !slices.Contains(known, kind) {
		return 0, berth.Invalid("event_type", "Invalid value: '%s'. Supported values are: %s.", kind, words(known))
	}
	payload, err := json.Marshal(sample(p, kind, time.Now()))
	if err != nil {
		return 0, err
	}
	status, failure := s.post(berth.WithProject(ctx, p), e,
		&Delivery{ID: berth.NewID(berth.PrefixDelivery), Payload: payload})
	if status == 0 {
		s.log.Info("failed to send test webhook", "project", p, "endpoint", id, "err", failure)
		return 0, berth.Errorf(berth.CodeInvalid,
			"The webhook endpoint could not be reached. Check that its URL is correct and accepts connections from this server.")
	}
	return status, nil
}

// sample returns an event about an object that does not exist.
func sample(p berth.ProjectID, kind berth.EventType, now time.Time) any {
	switch {
	case slices.Contains(SandboxEventTypes, kind):
		event := berth.NewSandboxEvent(berth.UUID(berth.NewID("")), kind)
		event.Timestamp, event.SandboxID, event.TeamID = now.UTC().Format(time.RFC3339), berth.NewID(""), p
		return event
	case strings.HasPrefix(string(kind), "batch."):
		return newEvent(kind, berth.NewID(berth.PrefixBatch), now)
	}
	return newEvent(kind, berth.NewID(berth.PrefixResponse), now)
}
