package egress

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/coder/websocket"
)

const value = `s3cr/et+"va lue`

// secretWorld is a world whose gate has a secret for *.example.com, and a client that trusts only
// its authority.
func secretWorld(t *testing.T, h http.HandlerFunc) (w *world, c *http.Client, placeholder string) {
	w = newWorld(t, policy(t, false, "*.example.com", "example.com:8443"))
	addr, roots := serve(t, true, h)
	for _, name := range []string{"api.example.com", "example.com"} {
		for _, port := range []int{443, 8443} {
			w.host(name, "93.184.216.34", port, addr)
		}
	}
	ca, err := NewAuthority("cntr_1")
	if err != nil {
		t.Fatal(err)
	}
	text, err := ca.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if w.gate.CA, err = ParseAuthority(text); err != nil {
		t.Fatal(err)
	}
	placeholder = NewPlaceholder("API_KEY")
	w.gate.Roots = roots
	w.gate.Secrets = []Secret{{Domain: "api.example.com", Name: "API_KEY", Value: value, Placeholder: placeholder}}
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(ca.PEM())
	return w, w.httpClient(trust), placeholder
}

func TestSecretsAreFilledIn(t *testing.T) {
	var got struct{ bearer, basic, query, path, json, form string }
	_, c, placeholder := secretWorld(t, func(w http.ResponseWriter, r *http.Request) {
		got.bearer, got.query, got.path = r.Header.Get("Authorization"), r.URL.Query().Get("key"), r.URL.Path
		_, got.basic, _ = r.BasicAuth()
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(r.Header.Get("Content-Type"), "json") {
			got.json = string(body)
		} else {
			got.form = string(body)
		}
	})
	get(t, c, "https://api.example.com/v1/"+placeholder+"/x?key="+placeholder, "Authorization", "Bearer "+placeholder)
	if got.bearer != "Bearer "+value || got.query != value || got.path != "/v1/"+value+"/x" {
		t.Errorf("got %+v", got)
	}
	get(t, c, "https://api.example.com/", "Authorization",
		"Basic "+base64.StdEncoding.EncodeToString([]byte("user:"+placeholder)))
	if got.basic != value {
		t.Errorf("basic: got %q", got.basic)
	}
	for kind, body := range map[string]string{"application/json": `{"key":"` + placeholder + `"}`,
		"application/x-www-form-urlencoded": "key=" + placeholder} {
		resp, err := c.Post("https://api.example.com/", kind, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if form, _ := url.ParseQuery(got.form); got.json != `{"key":"s3cr/et+\"va lue"}` || form.Get("key") != value {
		t.Errorf("bodies: got %s, %s", got.json, got.form)
	}
}

// A secret that the host echoes in pieces does not reach the sandbox.
func TestEchoedSecretsAreMasked(t *testing.T) {
	w, c, placeholder := secretWorld(t, func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		w.Header().Set("X-Key", "it is "+key)
		flush := w.(http.Flusher)
		for _, b := range []byte("raw " + key + " escaped " + url.QueryEscape(key) + " json " + inJSON(key) +
			" base64 " + base64.StdEncoding.EncodeToString([]byte(key)) + " end") {
			w.Write([]byte{b})
			flush.Flush()
		}
	})
	req, _ := http.NewRequest("GET", "https://api.example.com/", nil)
	req.Header.Set("Authorization", "Bearer "+placeholder)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	if want := "raw P escaped P json P base64 P end"; string(body) != strings.ReplaceAll(want, "P", placeholder) {
		t.Errorf("got %s", body)
	}
	if h := resp.Header.Get("X-Key"); h != "it is "+placeholder {
		t.Errorf("header: got %q", h)
	}
	c.CloseIdleConnections()
	if f := w.last(); strings.Contains(f.Reason+f.Target.String(), value) {
		t.Errorf("the flow contains the secret: %+v", f)
	}
}

// A compressed response cannot be masked, so it is refused.
func TestCompressedEcho(t *testing.T) {
	_, c, _ := secretWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		w.Header().Set("X-Other", "1")
		io.WriteString(w, "anything")
	})
	if status, body := get(t, c, "https://api.example.com/"); status != http.StatusBadGateway || strings.Contains(body,
		"anything") {
		t.Errorf("got %d %q", status, body)
	}
}

// An intercepted connection serves many requests. A client that must authenticate again may not
// open another.
func TestInterceptedConnectionIsKept(t *testing.T) {
	w, c, placeholder := secretWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		io.Copy(w, r.Body)
	})
	for range 20 {
		get(t, c, "https://api.example.com/")
		if status, body := get(t, c, "https://api.example.com/", "Authorization", placeholder); status != 200 {
			t.Fatalf("got %d %s", status, body)
		}
	}
	if got := w.gate.Traffic.Totals().Allowed; got != 1 {
		t.Errorf("%d connections were made, want 1", got)
	}
}

// Toward other hosts a placeholder is ordinary text, and so is another container's placeholder
// everywhere.
func TestPlaceholdersElsewhere(t *testing.T) {
	var got string
	h := func(w http.ResponseWriter, r *http.Request) { got = r.Header.Get("Authorization") }
	w, c, placeholder := secretWorld(t, h)
	addr, roots := serve(t, true, h)
	w.host("other.example.com", "93.184.216.35", 443, addr)
	get(t, w.httpClient(roots), "https://other.example.com/", "Authorization", placeholder)
	if got != placeholder {
		t.Errorf("another host got %q", got)
	}
	strange := NewPlaceholder("API_KEY")
	get(t, c, "https://api.example.com/", "Authorization", strange)
	if got != strange {
		t.Errorf("another container's placeholder: got %q", got)
	}
	if _, err := w.httpClient(roots).Get("https://api.example.com/"); err == nil {
		t.Error("a host with a secret is not intercepted")
	}
}

// The gate verifies the certificate of an intercepted host.
func TestInterceptedHostIsChecked(t *testing.T) {
	w, c, placeholder := secretWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("the request was sent") })
	w.gate.Roots = x509.NewCertPool()
	if status, body := get(t, c, "https://api.example.com/", "Authorization",
		placeholder); status != http.StatusBadGateway || strings.Contains(body, value) {
		t.Errorf("got %d %s", status, body)
	}
	if status, body := get(t, c, "https://api.example.com/", "Host",
		"other.example.com"); status != http.StatusForbidden {
		t.Errorf("another Host inside TLS: got %d %s", status, body)
	}
}

func TestWebSocketPasses(t *testing.T) {
	_, c, placeholder := secretWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != value {
			t.Errorf("handshake: got %q", r.Header.Get("Authorization"))
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		kind, b, _ := conn.Read(r.Context())
		_ = conn.Write(r.Context(), kind, append([]byte("echo "), b...))
		conn.CloseNow()
	})
	conn, _, err := websocket.Dial(t.Context(), "wss://api.example.com/", &websocket.DialOptions{HTTPClient: c,
		HTTPHeader: http.Header{"Authorization": {placeholder}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(t.Context(), websocket.MessageText, []byte("hi")); err != nil {
		t.Fatal(err)
	}
	if _, b, err := conn.Read(t.Context()); err != nil || string(b) != "echo hi" {
		t.Errorf("got %q, %v", b, err)
	}
}

// What is held back of an answer must not tell whether its end resembles a secret: a host that repeats the text of the
// sandbox would help it to guess the secret byte by byte.
func TestMaskIsNoOracle(t *testing.T) {
	m := newMask([]Secret{{Value: value, Placeholder: "PLACE"}})
	sizes := func(text string, framed bool) (all []int) {
		var in io.Reader = &maskedReader{mask: m, from: iotest.OneByteReader(strings.NewReader(text))}
		if framed {
			half := len(text) / 2
			host := io.MultiReader(bytes.NewReader(frame(opText, text[:half])),
				iotest.OneByteReader(bytes.NewReader(frame(frameFinal, text[half:]))))
			in = &frames{ReadWriteCloser: hostSays{Reader: host}, mask: m.sameLength()}
		}
		b := make([]byte, 1<<16)
		for {
			n, err := in.Read(b)
			if n > 0 {
				all = append(all, n)
			}
			if err != nil {
				return all
			}
		}
	}
	for _, form := range []string{value, url.QueryEscape(value), inJSON(value),
		base64.StdEncoding.EncodeToString([]byte(value)), hex.EncodeToString([]byte(value))} {
		for n := 1; n < len(form); n++ {
			for _, start := range []string{"", "a line\n", strings.Repeat("x", 2000)} {
				right, wrong := start+form[:n], start+form[:n-1]+"~"
				for _, framed := range []bool{false, true} {
					if a, b := sizes(right, framed), sizes(wrong, framed); !slices.Equal(a, b) {
						t.Fatalf("%q is passed on in pieces of %v, %q of %v", right, a, wrong, b)
					}
				}
			}
		}
	}
	// A line is passed on when it is complete, so that events are not late.
	event := "data: " + value[:5] + "\n\n"
	r := &maskedReader{mask: m, from: io.MultiReader(strings.NewReader(event), neverEnds{t})}
	b := make([]byte, 100)
	if n, err := r.Read(b); string(b[:n]) != event || err != nil {
		t.Errorf("got %q, %v", b[:n], err)
	}
}

// neverEnds fails the test when it is read.
type neverEnds struct{ t *testing.T }

func (n neverEnds) Read([]byte) (int, error) {
	n.t.Error("a complete line waits for more")
	return 0, io.EOF
}

// HTTP removes white space around the value of a field, so a host may echo a secret without it.
func TestSecretWithSpaces(t *testing.T) {
	m := newMask([]Secret{{Value: " padded-value\t", Placeholder: "PLACE"}})
	if got := m.replace("it is padded-value, " +
		hex.EncodeToString([]byte("padded-value"))); got != "it is PLACE, PLACE" {
		t.Errorf("got %q", got)
	}
}

// FuzzMask checks that masking a response in pieces equals masking it whole, and hides the value.
func FuzzMask(f *testing.F) {
	f.Add("aab", "xaabaaby", 1)
	f.Add("abab", "ababab", 2)
	f.Add("a b", "a+b a%20b YSBi", 3)
	f.Fuzz(func(t *testing.T, value, text string, size int) {
		if len(value) < 2 || len(value) > 256 || len(text) > 1<<12 || strings.Contains("PLACE", value) {
			return
		}
		m := newMask([]Secret{{Value: value, Placeholder: "PLACE"}})
		var from io.Reader = strings.NewReader(text)
		if size%2 == 0 {
			from = iotest.OneByteReader(from)
		}
		got, err := io.ReadAll(&maskedReader{mask: m, from: from})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range m.words.Load().all {
			rest := bytes.ReplaceAll(got, []byte("PLACE"), []byte("\x00\x01"))
			if bytes.Contains(rest, w.form) && !strings.ContainsAny(value, "\x00\x01") {
				t.Errorf("%q in %q: %q remains in %q", value, text, w.form, got)
			}
		}
	})
}
