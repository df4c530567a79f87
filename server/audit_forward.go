package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/audit/forward"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/egress/proxy"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
)

// forwarders send the audit record to the targets of the configuration.
type forwarders struct {
	all []*forward.Forwarder
}

// startForwarding starts to send the audit record to other systems.
func (s *Server) startForwarding(b *base) error {
	dir := filepath.Join(b.State, state.AuditDir)
	for i := range b.Config.Audit.Forward {
		t := &b.Config.Audit.Forward[i]
		sink, err := auditSink(b, t, dir)
		if err != nil {
			return fmt.Errorf("audit.forward[%d]: %w", i, err)
		}
		f, err := forward.Start(forward.Options{Record: b.audit, Dir: dir,
			Cursor: filepath.Join(b.State, "audit-forward", t.Title()), Name: t.Title(), Limit: t.MaxBehind, Sink: sink,
			Clock: clock.System, Log: b.Log})
		if err != nil {
			return errors.Join(err, sink.Close())
		}
		s.forwarded.all = append(s.forwarded.all, f)
		s.later(func(context.Context) error { return f.Close() })
	}
	return nil
}

// auditSink returns the sink of a target.
func auditSink(b *base, t *config.AuditTarget, dir string) (forward.Sink, error) {
	secure, err := auditTLS(b, t)
	if err != nil {
		return nil, err
	}
	format := forward.Berth
	if t.Format != "" {
		format = forward.Format(t.Format)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name of this machine: %w", err)
	}
	if t.Type == config.AuditSyslog {
		return &forward.Syslog{Address: t.Address, TLS: secure, Format: format, Host: host, Clock: clock.System,
			Dial: b.proxies.DialContext}, nil
	}
	headers, err := t.Headers()
	if err != nil {
		return nil, fmt.Errorf("headers_env: %w", err)
	}
	transport := b.proxies.Transport(proxy.WithTLS(secure))
	if t.Type == config.AuditOTLP {
		return forward.NewOTLP(transport, t.Endpoint(), headers, map[string]string{"service.name": "berth",
			"service.version": b.Build.Version, "service.instance.id": b.node, "host.name": host}, format,
			clock.System), nil
	}
	secret, err := t.Secret()
	if err != nil {
		return nil, fmt.Errorf("secret_env: %w", err)
	}
	record, err := audit.RecordName(dir)
	if err != nil {
		return nil, err
	}
	return forward.NewWebhook(transport, t.Endpoint(), headers, record, secret, format, clock.System)
}

// auditTLS returns the configuration of connections to a target.
func auditTLS(b *base, t *config.AuditTarget) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: b.proxies.Authorities()}
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca_file: %s has no certificate in PEM", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("cert_file: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// behind returns how many entries wait for each target.
func (f *forwarders) behind() map[string]int64 {
	all := map[string]int64{}
	for _, one := range f.all {
		all[one.Name] = one.Behind()
	}
	return all
}

// admit refuses new work if too many entries wait for a target.
func (f *forwarders) admit() error {
	for _, one := range f.all {
		if one.Full() {
			return &berth.Error{Code: berth.CodeUnavailable, RetryAfter: forwardRetry,
				Message: fmt.Sprintf("This server takes no new work until its audit record has reached the target %q. Ask its operator.",
					one.Name)}
		}
	}
	return nil
}

// forwardRetry is when a client that was refused may try again.
const forwardRetry = 30 * time.Second

// admission refuses requests that make new work while disk space is low or the audit record cannot be forwarded.
type admission struct {
	*diskspace.Guard
	forwarded *forwarders
}

func (a admission) Admit(areas ...diskspace.Area) error {
	if err := a.forwarded.admit(); err != nil {
		return err
	}
	return a.Guard.Admit(areas...)
}
