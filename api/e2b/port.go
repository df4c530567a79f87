package e2b

import (
	"errors"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/preview"
)

// defaultDomain is the parent domain of the host names of ports without a configured one.
const defaultDomain = "localhost"

// label matches the first label of a port's host, PORT-SANDBOX, or PORT-SANDBOX-CLIENT as former clients write it. A
// sandbox of another service has an id of another form.
var label = regexp.MustCompile(`^([0-9]+)-([0-9a-z]+)(?:-[0-9a-z]{1,8})?$`)

// parseHost parses a Host header, which names a port of a sandbox below a domain.
func parseHost(host, domain string) (address, bool) {
	if domain == "" {
		domain = defaultDomain
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	name, below := strings.CutSuffix(strings.TrimSuffix(strings.ToLower(host), "."), "."+domain)
	m := label.FindStringSubmatch(name)
	if !below || m == nil {
		return address{}, false
	}
	return address{sandbox: m[2], port: parsePort(m[1]), text: m[1]}, true
}

// parsePort returns the number of a port, or 0 if the text is not one.
func parsePort(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != text {
		return 0
	}
	return n
}

// domainFor returns the domain that a client is to use for ports of sandboxes, with the port of this
// server that it uses, or "" if this server has none for it.
func (h *sandboxes) domainFor(r *http.Request) string {
	name := h.domain
	if name == "" && exchange.LoopbackHost(r.Host) {
		name = defaultDomain
	}
	if _, port, err := net.SplitHostPort(r.Host); err == nil && name != "" {
		return net.JoinHostPort(name, port)
	}
	return name
}

// mayVisit returns the key of the holder of a traffic token, if a request has one. Ports are public, unless the sandbox
// was created with allowPublicTraffic false: then a request needs the token.
func (d *dataPlane) mayVisit(r *http.Request, to target) (berth.KeyID, error) {
	key, known, err := d.tokens.visitor(r, to.Project, to.id)
	if err != nil {
		return "", err
	}
	if to.Ports.Private && !known {
		return "", &refusal{http.StatusForbidden, proxyFailure{SandboxID: to.sandbox,
			Message: "The traffic access token is missing or invalid: send it in the header '" +
				strings.ToLower(trafficHeader) + "'.", Code: http.StatusForbidden}}
	}
	return key, nil
}

// servePort forwards a request to a port of a sandbox.
func (d *dataPlane) servePort(x *exchange.Exchange, r *http.Request, to target) error {
	keyed, err := d.dropSecrets(r, to.id)
	if err != nil {
		return err
	}
	dial, leave, err := d.containers.Access().Port(r.Context(), to.caller(x), to.id, to.port)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return gone(nameOf(to.id))
	}
	if err != nil {
		return err
	}
	defer leave()
	r, done, err := x.Duplex(r)
	if err != nil {
		return err
	}
	defer done()
	out := x.Patient()
	defer out.Renew() // the server sends the last bytes after the handler returns
	err = d.proxy.Serve(out, r, preview.Target{Container: to.id, Port: to.port, Dial: dial, Path: r.URL.EscapedPath(),
		Own: true, Public: true, Keyed: keyed,
		Host: strings.ReplaceAll(to.Ports.Host, "${PORT}", strconv.Itoa(to.port)),
		TLS:  slices.Contains(to.Ports.TLS, to.port)})
	if e, ok := errors.AsType[*berth.Error](err); ok && e.Wire == "port_not_open" {
		return portClosed(to.address)
	}
	if berth.ErrorCode(err) == berth.CodeUpstream { // a fault of the program in the sandbox
		d.log.Debug("port of a sandbox did not answer", "container", to.id, "port", to.port, "err", err)
		status, body := exchange.Describe(err, "")
		return &refusal{status, failure{status, body.Message}}
	}
	return err
}

// dropSecrets removes from a request what the server in the sandbox must not get: the tokens of
// the sandbox and keys of this server. It reports whether the client has sent any, which a redirect
// to another host would reveal.
func (d *dataPlane) dropSecrets(r *http.Request, id berth.ContainerID) (keyed bool, err error) {
	for _, name := range []string{idHeader, portHeader} {
		r.Header.Del(name)
	}
	if r.Header.Get(trafficHeader) != "" {
		r.Header.Del(trafficHeader)
		keyed = true
	}
	if given := r.Header.Get(tokenHeader); given != "" {
		if _, ours := d.tokens.minted(accessPurpose, string(id), given); ours {
			r.Header.Del(tokenHeader)
			keyed = true
		}
	}
	for name, key := range map[string]string{keyHeader: r.Header.Get(keyHeader), "Authorization": exchange.Token(r)} {
		own, err := d.isKey(r, key)
		if err != nil {
			return false, err
		}
		if own {
			r.Header.Del(name)
			keyed = true
		}
	}
	return keyed, nil
}

// isKey reports whether a text is a key of this server, or has the form of one.
func (d *dataPlane) isKey(r *http.Request, text string) (bool, error) {
	if text == "" || strings.HasPrefix(text, berth.KeyPrefix) {
		return text != "", nil
	}
	return exchange.IsKey(r.Context(), d.keys, text)
}
