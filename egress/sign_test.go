package egress

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	minio "github.com/minio/minio-go/v7/pkg/signer"

	"github.com/berth-run/berth/egress/sign"
)

// The credentials of the hosts in these tests.
var trueKey = sign.Key{ID: "AKIATRUE", Secret: "true-secret-canary", Session: "session-canary",
	Regions: []string{"us-east-1", "eu-west-1"}, Services: []string{"s3", "lambda"}}

// anAWS is a service that checks signatures as its documentation describes it, without the code of the gate.
type anAWS struct {
	got    chan *http.Request
	body   []byte
	failed string
}

func (a *anAWS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.body, _ = io.ReadAll(r.Body)
	a.failed = a.check(r)
	a.got <- r
	if a.failed != "" {
		w.Header().Set("X-Echo", r.Header.Get("X-Amz-Security-Token"))
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "<Error>%s %s %s</Error>", a.failed, r.Header.Get("Authorization"),
			r.Header.Get("X-Amz-Security-Token"))
		return
	}
	w.Header().Set("X-Range", r.Header.Get("Range"))
	w.Header().Set("X-Amz-Meta-Colour", "blue")
	io.WriteString(w, "fine")
}

func hmacOf(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	io.WriteString(h, text)
	return h.Sum(nil)
}

func hexHash(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// awsEscape encodes all but the unreserved characters.
func awsEscape(s string, slash bool) string {
	var out strings.Builder
	for _, c := range []byte(s) {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_.~", c) >= 0 ||
			slash && c == '/' {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}

// check returns what is wrong with the signature of a request.
func (a *anAWS) check(r *http.Request) string {
	var credential, fields, signature string
	auth := r.Header.Get("Authorization")
	if _, err := fmt.Sscanf(auth, "AWS4-HMAC-SHA256 Credential=%s SignedHeaders=%s Signature=%s", &credential, &fields,
		&signature); err != nil {
		return "not signed"
	}
	scope := strings.Split(strings.TrimSuffix(credential, ","), "/")
	fields = strings.TrimSuffix(fields, ",")
	if scope[0] != trueKey.ID || len(scope) != 5 || r.Header.Get("X-Amz-Security-Token") != trueKey.Session {
		return "not the key"
	}
	wire, query, _ := strings.Cut(r.RequestURI, "?")
	path := awsEscape(wire, true) // services encode twice
	hash := r.Header.Get("X-Amz-Content-Sha256")
	if scope[3] == "s3" {
		plain, _ := url.PathUnescape(wire)
		path = awsEscape(plain, true)
	}
	if plain := !strings.Contains(hash, "PAYLOAD"); hash == "" || plain {
		if hash != "" && hash != hexHash(a.body) {
			return "another body"
		}
		hash = hexHash(a.body)
	}
	var pairs []string
	values, _ := url.ParseQuery(query)
	for name, all := range values {
		for _, v := range all {
			pairs = append(pairs, awsEscape(name, false)+"="+awsEscape(v, false))
		}
	}
	slices.Sort(pairs)
	var head strings.Builder
	for name := range strings.SplitSeq(fields, ";") {
		value := strings.Join(r.Header.Values(name), ",")
		if name == "host" {
			value = r.Host
		}
		head.WriteString(name + ":" + strings.Join(strings.Fields(value), " ") + "\n")
	}
	if !strings.HasPrefix(head.String(), "host:") && !strings.Contains(head.String(), "\nhost:") {
		return "the host is not signed"
	}
	date := r.Header.Get("X-Amz-Date")
	at, err := time.Parse("20060102T150405Z", date)
	if err != nil || time.Since(at).Abs() > 5*time.Minute {
		return "not now"
	}
	key := []byte("AWS4" + trueKey.Secret)
	for _, part := range scope[1:] {
		key = hmacOf(key, part)
	}
	text := strings.Join([]string{r.Method, path, strings.Join(pairs, "&"), head.String(), fields, hash}, "\n")
	all := strings.Join(scope[1:], "/")
	want := hex.EncodeToString(hmacOf(key, strings.Join([]string{"AWS4-HMAC-SHA256", date, all, hexHash([]byte(text))},
		"\n")))
	if signature != want {
		return "the signature is wrong"
	}
	if strings.HasPrefix(hash, "STREAMING-AWS4") {
		return a.checkChunks(key, date, all, want, strings.HasSuffix(hash, "TRAILER"))
	}
	return ""
}

// checkChunks checks the signatures in the body, and leaves only the data.
func (a *anAWS) checkChunks(key []byte, date, scope, last string, trailer bool) string {
	var data []byte
	rest := a.body
	for {
		head, after, _ := bytes.Cut(rest, []byte("\r\n"))
		var size int
		var signature string
		if _, err := fmt.Sscanf(string(head), "%x;chunk-signature=%s", &size, &signature); err != nil {
			return "not a chunk: " + string(head)
		}
		last = hex.EncodeToString(hmacOf(key, strings.Join([]string{"AWS4-HMAC-SHA256-PAYLOAD", date, scope, last,
			hexHash(nil), hexHash(after[:size])}, "\n")))
		if last != signature {
			return "the signature of a chunk is wrong"
		}
		data = append(data, after[:size]...)
		if size > 0 {
			rest = after[size+2:]
			continue
		}
		rest = after
		break
	}
	if trailer {
		var fields, signature string
		for line := range strings.FieldsSeq(string(rest)) {
			if name, value, _ := strings.Cut(line, ":"); name == "x-amz-trailer-signature" {
				signature = value
			} else {
				fields += strings.ToLower(name) + ":" + value + "\n"
			}
		}
		if signature != hex.EncodeToString(hmacOf(key, strings.Join([]string{"AWS4-HMAC-SHA256-TRAILER", date, scope, last,
			hexHash([]byte(fields))}, "\n"))) {
			return "the signature of the trailer is wrong"
		}
	}
	a.body = data
	return ""
}

// keyWorld is a world whose gate signs requests to *.amazonaws.com.
func keyWorld(t *testing.T) (w *world, c *http.Client, a *anAWS, placeholder string) {
	a = &anAWS{got: make(chan *http.Request, 10)}
	w, c, _ = secretWorld(t, a.ServeHTTP)
	w.gate.Policy = policy(t, false, "*.example.com")
	placeholder = NewPlaceholder("AWS_ACCESS_KEY_ID")
	w.gate.Secrets = []Secret{{Domain: "api.example.com", Name: "AWS_ACCESS_KEY_ID", Placeholder: placeholder,
		Sign: &trueKey}}
	return w, c, a, placeholder
}

// A signing describes a request that a program in the sandbox signs with the placeholder.
type signing struct {
	method, url, service, region, body, hash string
	edit                                     func(*http.Request) // after the signature
}

func (s signing) request(t *testing.T, placeholder string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(s.method, s.url, strings.NewReader(s.body))
	if err != nil {
		t.Fatal(err)
	}
	hash := hexHash([]byte(s.body))
	if s.hash != "" {
		hash = s.hash
		r.Header.Set("X-Amz-Content-Sha256", hash)
	}
	key := aws.Credentials{AccessKeyID: placeholder, SecretAccessKey: "any"}
	if err := v4.NewSigner().SignHTTP(context.Background(), key, r, hash, s.service, s.region, time.Now(),
		func(o *v4.SignerOptions) { o.DisableURIPathEscaping = s.service == "s3" }); err != nil {
		t.Fatal(err)
	}
	if s.edit != nil {
		s.edit(r)
	}
	return r
}

func do(t *testing.T, c *http.Client, r *http.Request) (int, string) {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	all := fmt.Sprint(resp.Header) + string(body)
	for _, word := range []string{trueKey.ID, trueKey.Secret, trueKey.Session} {
		if strings.Contains(all, word) {
			t.Errorf("the sandbox sees %q in %s", word, all)
		}
	}
	return resp.StatusCode, string(body)
}

func TestSignedAnew(t *testing.T) {
	w, c, a, placeholder := keyWorld(t)
	const at = "https://api.example.com"
	for name, s := range map[string]signing{
		"plain":         {method: "GET", url: at + "/", service: "lambda", region: "us-east-1"},
		"path":          {method: "GET", url: at + "/2015/fn/arn%3Aaws%3Alambda/a%20b/+x", service: "lambda", region: "eu-west-1"},
		"slash in path": {method: "GET", url: at + "/fn/a%2Fb/c", service: "lambda", region: "us-east-1"},
		"key of s3":     {method: "GET", url: at + "/b/a%20b+c(d)%2Fe/é//f", service: "s3", region: "us-east-1", hash: hexHash(nil)},
		"raw path":      {method: "GET", url: at + "/b/a(1)!'*,;=:@$&", service: "s3", region: "us-east-1", hash: hexHash(nil)},
		"query":         {method: "GET", url: at + "/?b=2&a=1&a=0&c=%20%2B&d", service: "s3", region: "us-east-1", hash: hexHash(nil)},
		"body":          {method: "POST", url: at + "/x", service: "lambda", region: "us-east-1", body: strings.Repeat("body", 1<<18)},
		"hash":          {method: "PUT", url: at + "/x", service: "s3", region: "us-east-1", body: "body", hash: hexHash([]byte("body"))},
		"unsigned":      {method: "PUT", url: at + "/x", service: "s3", region: "us-east-1", body: "body", hash: "UNSIGNED-PAYLOAD"},
		"unsigned trailer": {method: "PUT", url: at + "/x", service: "s3", region: "us-east-1", body: "4\r\nbody\r\n0\r\n\r\n",
			hash: "STREAMING-UNSIGNED-PAYLOAD-TRAILER"},
		"own session": {method: "GET", url: at + "/", service: "lambda", region: "us-east-1",
			edit: func(r *http.Request) { r.Header.Set("X-Amz-Security-Token", "own") }},
		"another date": {method: "GET", url: at + "/", service: "lambda", region: "us-east-1",
			edit: func(r *http.Request) { r.Header.Set("X-Amz-Date", "20010101T000000Z") }},
		"field twice": {method: "GET", url: at + "/", service: "lambda", region: "us-east-1",
			edit: func(r *http.Request) { r.Header["X-Amz-Meta-A"] = []string{" one  two ", "three"} }},
		"range": {method: "GET", url: at + "/", service: "s3", region: "us-east-1", hash: hexHash(nil),
			edit: func(r *http.Request) { r.Header.Set("Range", "bytes=0-1") }},
		"dropped field": {method: "GET", url: at + "/", service: "lambda", region: "us-east-1", edit: func(r *http.Request) {
			r.Header.Set("Connection", "X-Amz-Date, X-Amz-Security-Token, Authorization-X")
		}},
		"host in another spelling": {method: "GET", url: at + "/", service: "lambda", region: "us-east-1",
			edit: func(r *http.Request) { r.Host = "API.example.com.:443" }},
	} {
		status, body := do(t, c, s.request(t, placeholder))
		if status != 200 || body != "fine" {
			t.Errorf("%s: got %d %s", name, status, body)
		}
		if r := <-a.got; r.Host != "api.example.com" || strings.Contains(fmt.Sprint(r.Header, r.URL), placeholder) {
			t.Errorf("%s: sent %s %v", name, r.Host, r.Header)
		}
	}
	c.CloseIdleConnections()
	if f := w.last(); !slices.Contains(f.Secrets, "AWS_ACCESS_KEY_ID") {
		t.Errorf("the flow names no key: %+v", f)
	}
}

// A host that refuses a request repeats the signature and the token: the sandbox sees neither the id nor the token.
func TestSignedEcho(t *testing.T) {
	_, c, a, placeholder := keyWorld(t)
	r := signing{method: "PUT", url: "https://api.example.com/x", service: "s3", region: "us-east-1", body: "body",
		hash: hexHash([]byte("other"))}.request(t, placeholder)
	if status, body := do(t, c, r); status != 403 || !strings.Contains(body, "another body") || !strings.Contains(body,
		placeholder) {
		t.Errorf("got %d %s", status, body)
	}
	<-a.got
}

func TestPresigned(t *testing.T) {
	_, c, a, placeholder := keyWorld(t)
	presign := func(at time.Time, expires string) *http.Request {
		r, _ := http.NewRequest("GET", "https://api.example.com/b/k?x=1&X-Amz-Expires="+expires, nil)
		signed, _, err := v4.NewSigner().PresignHTTP(t.Context(), aws.Credentials{AccessKeyID: placeholder,
			SecretAccessKey: "any"}, r, "UNSIGNED-PAYLOAD", "s3", "us-east-1", at)
		if err != nil {
			t.Fatal(err)
		}
		r, _ = http.NewRequest("GET", signed, nil)
		return r
	}
	if status, body := do(t, c, presign(time.Now(), "60")); status != 200 {
		t.Errorf("got %d %s", status, body)
	}
	if r := <-a.got; r.URL.RawQuery != "x=1" {
		t.Errorf("sent %s", r.URL)
	}
	if status, body := do(t, c, presign(time.Now().Add(-time.Hour), "60")); status != 403 || !strings.Contains(body,
		"expired") {
		t.Errorf("an expired URL: got %d %s", status, body)
	}
}

// Clients that sign each chunk of a body: minio's signer, with and without a trailer.
func TestSignedChunks(t *testing.T) {
	_, c, a, placeholder := keyWorld(t)
	for _, trailer := range []bool{false, true} {
		for _, size := range []int{0, 1, 64 << 10, 200_000} {
			data := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
			r, _ := http.NewRequest("PUT", "https://api.example.com/b/key", nil)
			r.Body = io.NopCloser(bytes.NewReader(data))
			if trailer {
				r.Trailer = http.Header{"X-Amz-Checksum-Sha256": {"Zm9v"}}
			}
			r = minio.StreamingSignV4(r, placeholder, "any", "", "us-east-1", int64(size), time.Now().UTC(),
				hasher{sha256.New()})
			r.Trailer = nil
			status, body := do(t, c, r)
			if status != 200 || !bytes.Equal(a.body, data) {
				t.Errorf("%v %d: got %d %s", trailer, size, status, body)
			}
			<-a.got
		}
	}
	for name, body := range map[string]string{
		"unsigned":  "4\r\nbody\r\n0\r\n\r\n",
		"short":     "4;chunk-signature=" + hexHash(nil) + "\r\nbo",
		"long":      "2;chunk-signature=" + hexHash(nil) + "\r\nbody\r\n",
		"after it":  "0;chunk-signature=" + hexHash(nil) + "\r\n\r\nGET / HTTP/1.1\r\n\r\n",
		"huge":      "fffffff;chunk-signature=" + hexHash(nil) + "\r\n",
		"long line": strings.Repeat("0", 5000) + "4;chunk-signature=" + hexHash(nil) + "\r\nbody\r\n",
	} {
		r := signing{method: "PUT", url: "https://api.example.com/x", service: "s3", region: "us-east-1", body: body,
			hash: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}.request(t, placeholder)
		status, text := do(t, c, r)
		if status != 403 || !strings.Contains(text, "the chunks of the body") {
			t.Errorf("%s: got %d %s", name, status, text)
		}
	}
}

type hasher struct {
	h interface {
		io.Writer
		Sum([]byte) []byte
		Reset()
		Size() int
		BlockSize() int
	}
}

func (h hasher) Write(b []byte) (int, error) { return h.h.Write(b) }
func (h hasher) Sum(b []byte) []byte         { return h.h.Sum(b) }
func (h hasher) Reset()                      { h.h.Reset() }
func (h hasher) Size() int                   { return h.h.Size() }
func (h hasher) BlockSize() int              { return h.h.BlockSize() }
func (h hasher) Close()                      {}

// What the gate does not sign: no such request reaches a host.
func TestNotSigned(t *testing.T) {
	w, c, a, placeholder := keyWorld(t)
	another := NewPlaceholder("OTHER")
	w.gate.Secrets = append(w.gate.Secrets, Secret{Domain: "api.example.com", Name: "OTHER", Placeholder: another,
		Sign: &sign.Key{ID: "AKIAOTHER", Secret: "other", Regions: []string{"us-east-1"}, Services: []string{"sqs"}}})
	const at = "https://api.example.com/"
	auth := func(edit func(string) string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", edit(r.Header.Get("Authorization"))) }
	}
	swap := func(from, to string) func(*http.Request) {
		return auth(func(s string) string { return strings.ReplaceAll(s, from, to) })
	}
	fine := signing{method: "GET", url: at, service: "s3", region: "us-east-1", hash: hexHash(nil)}
	for name, c1 := range map[string]struct {
		edit func(*signing)
		want string
	}{
		"another service":        {func(s *signing) { s.service = "sts" }, "service"},
		"another region":         {func(s *signing) { s.region = "us-west-2" }, "region"},
		"service of another key": {func(s *signing) { s.service = "sqs" }, "service"},
		"no service":             {func(s *signing) { s.edit = swap("/s3/", "//") }, "scope"},
		"scope with a line":      {func(s *signing) { s.edit = swap("/s3/", "/s3%0a/") }, "scope"},
		"longer scope":           {func(s *signing) { s.edit = swap("/s3/", "/s3/s3/") }, "scope"},
		"key in another key":     {func(s *signing) { s.edit = swap(placeholder, placeholder+"x") }, "placeholder"},
		"two keys":               {func(s *signing) { s.edit = swap("SignedHeaders=", "Credential="+another+"/, SignedHeaders=") }, "malformed"},
		"two signatures": {func(s *signing) {
			s.edit = func(r *http.Request) { r.Header["Authorization"] = append(r.Header["Authorization"], "x") }
		}, "more than one"},
		"also in the URL": {func(s *signing) { s.edit = func(r *http.Request) { r.URL.RawQuery = "X-Amz-Signature=x" } }, "more than one"},
		"version 4A":      {func(s *signing) { s.edit = swap("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256") }, "AWS4-HMAC-SHA256"},
		"version 2":       {func(s *signing) { s.edit = auth(func(string) string { return "AWS " + placeholder + ":x" }) }, "AWS4-HMAC-SHA256"},
		"bearer":          {func(s *signing) { s.edit = auth(func(string) string { return "Bearer " + placeholder }) }, "AWS4-HMAC-SHA256"},
		"placeholder in a query": {func(s *signing) {
			s.edit = func(r *http.Request) { r.Header.Del("Authorization"); r.URL.RawQuery = "k=" + placeholder }
		}, "not part"},
		"dots":                    {func(s *signing) { s.url = at + "a/%2e%2e/b" }, "path"},
		"another form of payload": {func(s *signing) { s.hash = "STREAMING-AWS4-HMAC-SHA256-EVENTS" }, "form"},
		"two hashes": {func(s *signing) {
			s.edit = func(r *http.Request) { r.Header["X-Amz-Content-Sha256"] = []string{"a", "b"} }
		}, "more than one"},
		"huge body": {func(s *signing) {
			s.method, s.service, s.hash, s.body = "POST", "lambda", "", strings.Repeat("x", maxHashed+1)
		}, "8 MiB"},
		"another host": {func(s *signing) { s.edit = func(r *http.Request) { r.Host = "other.example.com" } }, "another host"},
	} {
		s := fine
		c1.edit(&s)
		if status, body := do(t, c, s.request(t, placeholder)); status != 403 || !strings.Contains(body, c1.want) {
			t.Errorf("%s: got %d %s", name, status, body)
		}
	}
	// A host without the key gets the placeholder as it is.
	r := signing{method: "GET", url: "https://b.example.com/", service: "s3", region: "us-east-1"}.request(t, placeholder)
	if key := w.gate.fillsFor("b.example.com"); key.reads() {
		t.Errorf("another host has the key: %+v, %v", key, r.URL)
	}
	if n := len(a.got); n > 0 {
		t.Errorf("%d requests reached the host", n)
	}
	// The sandbox's own credentials pass.
	if status, _ := do(t, c, fine.request(t, "AKIAOWN")); status != 403 || a.failed != "not the key" {
		t.Errorf("own credentials: got %d %s", status, a.failed)
	}
}
