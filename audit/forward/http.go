package forward

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/clock"
)

// maxAnswer is how much of an answer is read.
const maxAnswer = 64 << 10

// A target is what both kinds of HTTP sinks have.
type target struct {
	client  *http.Client
	url     string
	headers map[string]string
}

// post sends a body and returns the answer to it.
func (t *target) post(ctx context.Context, kind string, body []byte, own http.Header) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("create request: %w", err)
	}
	for name, value := range t.headers {
		req.Header.Set(name, value)
	}
	for name := range own {
		req.Header.Set(name, own.Get(name))
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("User-Agent", "Berth audit")
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("the target answered %s", resp.Status)
	}
	return answer, err
}

// newTarget returns a target. It follows no redirects: they may lead elsewhere.
func newTarget(transport http.RoundTripper, url string, headers map[string]string) target {
	return target{&http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}, url, headers}
}

// A Webhook posts entries as {"record": NAME, "entries": […]}, signed as Standard Webhooks are
// (https://www.standardwebhooks.com). The id of a delivery is that of its record and its first and last entry.
type Webhook struct {
	target
	record string
	secret []byte
	format Format
	clock  clock.Clock
}

// NewWebhook returns a Webhook. The secret is whsec_ and base64.
func NewWebhook(transport http.RoundTripper, url string, headers map[string]string, record, secret string,
	format Format, c clock.Clock) (*Webhook, error) {
	encoded, ok := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 16 {
		return nil, errors.New("the secret is not whsec_ and at least 16 bytes in base64")
	}
	return &Webhook{newTarget(transport, url, headers), record, key, format, c}, nil
}

// Send posts entries. The endpoint takes them by a status of 2xx.
func (w *Webhook) Send(ctx context.Context, entries []*audit.Entry) error {
	content := struct {
		Record  string            `json:"record"`
		Entries []json.RawMessage `json:"entries"`
	}{Record: w.record}
	for _, e := range entries {
		raw, err := w.format.encode(e)
		if err != nil {
			return err
		}
		content.Entries = append(content.Entries, raw)
	}
	body, err := json.Marshal(content)
	if err != nil {
		return err
	}
	id := fmt.Sprintf("%s:%d-%d", w.record, entries[0].Seq, entries[len(entries)-1].Seq)
	at := strconv.FormatInt(w.clock.Now().Unix(), 10)
	mac := hmac.New(sha256.New, w.secret)
	fmt.Fprintf(mac, "%s.%s.", id, at)
	mac.Write(body)
	own := http.Header{}
	own.Set("webhook-id", id)
	own.Set("webhook-timestamp", at)
	own.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	_, err = w.post(ctx, "application/json", body, own)
	return err
}

// Close closes idle connections.
func (w *Webhook) Close() error {
	w.client.CloseIdleConnections()
	return nil
}

// OTLP sends entries as log records to a collector of OpenTelemetry, over HTTP in JSON:
// https://opentelemetry.io/docs/specs/otlp/#otlphttp.
type OTLP struct {
	target
	resource []attribute
	format   Format
	clock    clock.Clock
}

// The JSON form of ExportLogsServiceRequest, as far as entries need it.
type (
	exportLogs struct {
		ResourceLogs []resourceLogs `json:"resourceLogs"`
	}
	resourceLogs struct {
		Resource struct {
			Attributes []attribute `json:"attributes"`
		} `json:"resource"`
		ScopeLogs []scopeLogs `json:"scopeLogs"`
	}
	scopeLogs struct {
		Scope struct {
			Name string `json:"name"`
		} `json:"scope"`
		Records []logRecord `json:"logRecords"`
	}
	logRecord struct {
		Time       int64       `json:"timeUnixNano,string"`
		Observed   int64       `json:"observedTimeUnixNano,string"`
		Severity   int         `json:"severityNumber"`
		Word       string      `json:"severityText"`
		Body       anyValue    `json:"body"`
		Attributes []attribute `json:"attributes"`
		Event      string      `json:"eventName"`
	}
	attribute struct {
		Key   string   `json:"key"`
		Value anyValue `json:"value"`
	}
	anyValue struct {
		Text string `json:"stringValue"`
	}
)

// The severities of log records.
const (
	severityInfo = 9
	severityWarn = 13
)

// NewOTLP returns an OTLP. The attributes are those of the resource, such as service.instance.id.
func NewOTLP(transport http.RoundTripper, url string, headers, attributes map[string]string, format Format,
	c clock.Clock) *OTLP {
	o := &OTLP{target: newTarget(transport, url, headers), format: format, clock: c}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		o.resource = append(o.resource, attribute{name, anyValue{attributes[name]}})
	}
	return o
}

// Send sends entries. The collector must take all of them.
func (o *OTLP) Send(ctx context.Context, entries []*audit.Entry) error {
	var scope scopeLogs
	scope.Scope.Name = "github.com/berth-run/berth/audit"
	now := o.clock.Now().UnixNano()
	for _, e := range entries {
		raw, err := o.format.encode(e)
		if err != nil {
			return err
		}
		r := logRecord{Time: e.Time.UnixNano(), Observed: now, Severity: severityInfo, Word: "INFO",
			Body: anyValue{string(raw)}, Event: string(e.Action),
			Attributes: []attribute{{"berth.audit.sequence", anyValue{strconv.FormatInt(e.Seq, 10)}},
				{"berth.audit.hash", anyValue{e.Hash.String()}}}}
		if refused(e) {
			r.Severity, r.Word = severityWarn, "WARN"
		}
		scope.Records = append(scope.Records, r)
	}
	of := resourceLogs{ScopeLogs: []scopeLogs{scope}}
	of.Resource.Attributes = o.resource
	body, err := json.Marshal(exportLogs{[]resourceLogs{of}})
	if err != nil {
		return err
	}
	raw, err := o.post(ctx, "application/json", body, nil)
	if err != nil {
		return err
	}
	var answer struct {
		Partial struct {
			Rejected json.Number `json:"rejectedLogRecords"`
			Message  string      `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if len(raw) > 0 && json.Unmarshal(raw, &answer) != nil {
		return errors.New("the collector's answer is no JSON: the URL may not be that of a collector")
	}
	if n, _ := answer.Partial.Rejected.Int64(); n > 0 {
		return fmt.Errorf("the collector rejected %d of %d entries: %.200q", n, len(entries), answer.Partial.Message)
	}
	return nil
}

// Close closes idle connections.
func (o *OTLP) Close() error {
	o.client.CloseIdleConnections()
	return nil
}
