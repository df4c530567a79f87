package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"github.com/berth-run/berth/egress/proxy"
	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/internal/nofile"
	"github.com/berth-run/berth/server/config"
)

// certificates holds the server's certificate from files. It is safe for concurrent use.
type certificates struct {
	current atomic.Pointer[tls.Certificate]
}

// read reads the certificate of a configuration. It returns nil if r is nil: then the server was
// not started with one.
func (r *certificates) read(c config.ServerTLS) (*tls.Certificate, error) {
	if r == nil {
		return nil, nil
	}
	if c.CertFile == "" {
		return nil, errors.New("server.tls: the certificate of a running server cannot be removed; restart it")
	}
	return config.ReadCertificate(c)
}

// use makes new connections use a certificate. It does nothing if r is nil.
func (r *certificates) use(c *tls.Certificate) {
	if r != nil {
		r.current.Store(c)
	}
}

func (r *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return r.current.Load(), nil
}

// challengeFiles bounds the file descriptors of the server for challenges, half of them for
// connections.
const challengeFiles = 256

// startTLS prepares HTTPS, if it is configured. It returns nil if it is not. Only HTTP/1.1 is
// offered: the limits of connections are limits of concurrent requests too.
func (s *Server) startTLS(c config.ServerTLS, state string) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	switch {
	case c.CertFile != "":
		pair, err := config.ReadCertificate(c)
		if err != nil {
			return nil, err
		}
		s.reloader.certs = &certificates{}
		s.reloader.certs.use(pair)
		conf.GetCertificate = s.reloader.certs.get
		return conf, nil
	case len(c.ACME.Domains) > 0:
		m, err := acmeManager(c.ACME, state, s.proxies)
		if err != nil {
			return nil, err
		}
		conf.GetCertificate = s.logged(m)
		conf.NextProtos = append(conf.NextProtos, acme.ALPNProto)
		return conf, s.serveChallenges(m, c.ACME.Listen)
	}
	return nil, nil
}

// acmeManager returns the client of the authority. Its account key and certificates are in the
// directory acme of the state directory.
func acmeManager(c config.ACME, state string, proxies *proxy.Selector) (*autocert.Manager, error) {
	client := &acme.Client{DirectoryURL: c.Directory, HTTPClient: &http.Client{Timeout: time.Minute,
		Transport: proxies.Transport()}}
	if c.Directory == "" {
		client.DirectoryURL = acme.LetsEncryptURL
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("server.tls.acme.ca_file: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("server.tls.acme.ca_file: %s contains no certificate", c.CAFile)
		}
		client.HTTPClient.Transport = proxies.Transport(proxy.WithTLS(&tls.Config{RootCAs: roots,
			MinVersion: tls.VersionTLS12}))
	}
	return &autocert.Manager{Prompt: autocert.AcceptTOS, Cache: autocert.DirCache(filepath.Join(state, "acme")),
		HostPolicy: autocert.HostWhitelist(c.Domains...), Client: client, Email: c.Email}, nil
}

// logged logs failures to obtain a certificate for one of the server's domains. Handshakes for
// other names fail without a log line, because any client can cause them.
func (s *Server) logged(m *autocert.Manager) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := m.GetCertificate(hello)
		if err == nil {
			return pair, nil
		}
		if m.HostPolicy(hello.Context(), hello.ServerName) == nil {
			s.log.Error("failed to obtain a certificate", "domain", hello.ServerName, "err", err)
		}
		return nil, fmt.Errorf("obtain certificate: %w", err)
	}
}

// serveChallenges answers the authority's challenges over plain HTTP, unless listen is "", and
// redirects other requests to HTTPS.
func (s *Server) serveChallenges(m *autocert.Manager, listen string) error {
	if listen == "" {
		return nil
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("serve ACME challenges: %w", err)
	}
	bounded := conns.Limit(l, nofile.DefaultConnections(challengeFiles), s.log)
	challenges := m.HTTPHandler(nil)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host, _, err := net.SplitHostPort(r.Host); err == nil { // challenges compares it with the domains
			r.Host = host
		}
		challenges.ServeHTTP(w, r)
	})
	hs := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout:   10 * time.Second,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
	bounded.Attach(hs)
	go func() { _ = hs.Serve(bounded) }()
	s.later(func(context.Context) error { return hs.Close() })
	return nil
}
