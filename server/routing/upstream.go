package routing

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress/proxy"
	"github.com/berth-run/berth/model/balance"
	"github.com/berth-run/berth/model/upstream"
	"github.com/berth-run/berth/server/config"
)

// UpstreamOptions returns the options of all providers, without the key.
func UpstreamOptions(u *config.Upstream, name string, proxies *proxy.Selector,
	log *slog.Logger) (upstream.Options, error) {
	own, err := u.ProxyURL()
	if err != nil {
		return upstream.Options{}, err
	}
	conf, err := tlsOf(u.TLS)
	return upstream.Options{Name: name, BaseURL: u.BaseURL, Headers: u.Headers, Log: log, Proxy: own, Proxies: proxies,
		TLS:     conf,
		Connect: u.Timeouts.Connect, FirstToken: u.Timeouts.FirstToken, Silence: u.Timeouts.Silence}, err
}

// tlsOf reads the files and returns the TLS configuration, or nil for the default.
func tlsOf(t config.UpstreamTLS) (*tls.Config, error) {
	if t == (config.UpstreamTLS{}) {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.Insecure}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf(".tls.ca_file: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf(".tls.ca_file: %s contains no certificate", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf(".tls.cert_file: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

// openUpstream creates the upstream. An anonymous upstream belongs to one model and has no name of its
// own. The error continues the upstream's key.
func openUpstream(u *config.Upstream, name string, anonymous bool, currency string, proxies *proxy.Selector,
	firstToken func(upstream, model string, took time.Duration), log *slog.Logger) (*balance.Upstream, error) {
	shown := name
	if anonymous { // name is a pattern of models
		shown = u.ProviderName()
	}
	options, err := UpstreamOptions(u, shown, proxies, log.With("upstream", name))
	if err != nil {
		return nil, err
	}
	secrets, err := u.Secrets()
	if err != nil {
		return nil, err
	}
	var keys []balance.Key
	for _, s := range secrets {
		options.APIKey = s.Value
		p, err := Providers[u.ProviderName()](u, options)
		if err != nil {
			return nil, fmt.Errorf(": %w", err)
		}
		keys = append(keys, balance.Key{Name: s.Name, Provider: p})
	}
	opened, err := balance.NewUpstream(balance.UpstreamOptions{Name: name, Anonymous: anonymous, Keys: keys, Log: log,
		FirstToken: firstToken,
		Limits:     balance.Limits(u.Limits),
		Breaker:    balance.Breaker(u.Breaker),
		Prices:     balance.Prices{Currency: currency, Models: pricesOf(u)}})
	if err != nil {
		return nil, fmt.Errorf(": %w", err)
	}
	return opened, nil
}

func pricesOf(u *config.Upstream) map[string]balance.Price {
	all := map[string]balance.Price{}
	for name, p := range u.Prices {
		all[name] = balance.Price{Input: berth.Amount(p.Input), CachedInput: (*berth.Amount)(p.CachedInput),
			CacheWrite: (*berth.Amount)(p.CacheWrite), Output: berth.Amount(p.Output)}
	}
	return all
}
