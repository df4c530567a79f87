package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

const (
	maxRefusal  = 64 << 10  // bytes of an error that are read
	maxMessage  = 2000      // bytes of its message that are shown
	maxWaitTime = time.Hour // the longest wait that an upstream can request
)

// A Refusal is an error that the upstream sent: an HTTP status, or an error within the
// stream, whose Status is 0.
type Refusal struct {
	Status int
	Header http.Header
	Body   []byte
}

// Error omits the body, which may hold anything.
func (r *Refusal) Error() string { return fmt.Sprintf("the upstream answered %d", r.Status) }

func refuse(res *http.Response) *Refusal {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal)) // a part of the body is enough
	return &Refusal{Status: res.StatusCode, Header: res.Header, Body: body}
}

// refusingTransport turns error statuses into refusals before a vendor's SDK reads them. The
// SDK would read bodies of any size, and only in its vendor's form.
type refusingTransport struct{ next http.RoundTripper }

func (t refusingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("send request: %w", err)
	}
	if res.StatusCode < http.StatusBadRequest {
		return res, nil
	}
	defer res.Body.Close()
	return nil, refuse(res)
}

// A Complaint is a refusal, decoded.
type Complaint struct {
	Status  int // overrides the refusal's unless 0
	Message string
	Code    string // the vendor's error code, which the client sees
	Param   string // the request's field at fault, by its name in Responses

	RetryAfter time.Duration // if the body has it
}

// A mismatch is the error of an answer that is not in the vendor's dialect.
type mismatch struct {
	status int
	what   string
	err    error
}

func (m *mismatch) Error() string { return m.what + ": " + m.err.Error() }
func (m *mismatch) Unwrap() error { return m.err }

// failure turns an error into one that the caller may see.
func (u *Upstream) failure(ctx, watched context.Context, name string, err error,
	explain func(*Refusal) Complaint) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(context.Cause(watched), errSilent):
		return &berth.Error{Code: berth.CodeUpstream, Message: u.who() + " stopped responding.", Err: errSilent}
	}
	if _, ok := errors.AsType[*berth.Error](err); ok {
		return err
	}
	if r, ok := errors.AsType[*Refusal](err); ok {
		return u.Refused(r, explain, name)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		why := errors.New(u.Show(e.Err.Error())) // without the address
		if dial, ok := errors.AsType[*net.OpError](e); ok && dial.Op == "dial" {
			why = fmt.Errorf("%w: %w", model.ErrUnreachable, why)
		}
		return &berth.Error{Code: berth.CodeUpstream, Message: u.who() + " could not be reached.", Err: why}
	}
	if errors.Is(err, errEmpty) {
		return &berth.Error{Code: berth.CodeUpstream, Message: u.who() + " sent an empty answer.", Err: err}
	}
	if m, ok := errors.AsType[*mismatch](err); ok {
		return &berth.Error{Code: berth.CodeUpstream, Err: errors.New(u.Show(m.err.Error())),
			Message: u.Show(fmt.Sprintf("%s answered %d %s. Check its base_url.", u.who(), m.status, m.what))}
	}
	return &berth.Error{Code: berth.CodeUpstream, Message: u.who() + " ended its answer early.",
		Err: errors.New(u.Show(err.Error()))}
}

// Refused returns the error for a refusal. If the client can fix it, the message is
// the upstream's. If only the operator can, the client learns just that, and the
// upstream's message goes to the log.
func (u *Upstream) Refused(r *Refusal, explain func(*Refusal) Complaint, name string) error {
	c := explain(r)
	c.Message = u.Show(c.Message)
	status := cmp.Or(c.Status, r.Status)
	if status == 0 { // some upstreams put it into the code
		status, _ = strconv.Atoi(c.Code)
	}
	if status == 0 {
		status = statusOf[c.Code]
	}
	cause := errors.New(cmp.Or(c.Message, r.Error()))
	out := &berth.Error{Code: berth.CodeUpstream, Message: u.who() + " failed.", Err: cause}
	switch {
	case c.Code == "insufficient_quota":
		out = u.unavailable("has no quota left", fmt.Errorf("%w: %w", model.ErrKey, cause))
	case status == http.StatusNotFound && names(c, name):
		return &berth.Error{Code: berth.CodeNotFound, Wire: "model_not_found", Param: "model", Err: cause,
			Message: fmt.Sprintf("The model `%s` does not exist or you do not have access to it.%s", name, u.lacks())}
	case status == http.StatusTooManyRequests:
		out = &berth.Error{Code: berth.CodeRateLimited, Message: cmp.Or(c.Message,
			u.who()+" is rate limited. Try again later.")}
	case status/100 == 4 && model.MatchesTooLong(c.Code, c.Message):
		out = model.TooLong(c.Message)
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge,
		status == http.StatusUnprocessableEntity:
		out = &berth.Error{Code: berth.CodeInvalid, Wire: wireCode(c.Code), Param: c.Param,
			Message: cmp.Or(c.Message, fmt.Sprintf("%s refused the request (%d).", u.who(), status))}
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly,
		status >= 500:
		out.Message = fmt.Sprintf("%s failed (%d).", u.who(), status)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		out = u.unavailable(fmt.Sprintf("refused the API key configured for it (%d)", status),
			fmt.Errorf("%w: %w", model.ErrKey, cause))
	case status == http.StatusPaymentRequired:
		out = u.unavailable(fmt.Sprintf("requires payment (%d)", status), fmt.Errorf("%w: %w", model.ErrKey, cause))
	case status != 0:
		out = u.unavailable(fmt.Sprintf("refused Berth's request (%d)", status), cause)
	}
	if after, ok := retryAfter(r.Header); ok {
		return model.WithRetryAfter(out, after)
	}
	if c.RetryAfter > 0 {
		return model.WithRetryAfter(out, min(c.RetryAfter, maxWaitTime))
	}
	return out
}

// unavailable returns an error that only the operator can fix; retrying does not help.
func (u *Upstream) unavailable(what string, err error) *berth.Error {
	return &berth.Error{Code: berth.CodeUnavailable, Wire: "upstream_refused", Message: u.who() + " " + what + ".",
		Err: err}
}

// who returns the upstream as the subject of a message for the client.
func (u *Upstream) who() string {
	if u.Name == "" {
		return "The model's server"
	}
	return "The upstream '" + u.Name + "'"
}

// lacks returns the sentence that names the upstream without a model, or "".
func (u *Upstream) lacks() string {
	if u.Name == "" {
		return ""
	}
	return " " + u.who() + " does not have it."
}

// statusOf maps the codes of errors within a stream to a status.
var statusOf = map[string]int{
	"rate_limit_exceeded":     http.StatusTooManyRequests,
	"context_length_exceeded": http.StatusBadRequest,
	"invalid_request_error":   http.StatusBadRequest,
}

// names reports whether a "not found" complaint concerns the model, not a path that
// does not exist.
func names(c Complaint, model string) bool {
	return c.Code == "model_not_found" || c.Code == "DeploymentNotFound" || model != "" && strings.Contains(c.Message,
		model)
}

// wireCode returns a code that is a name. Some upstreams repeat the status as code.
func wireCode(code string) string {
	if _, err := strconv.Atoi(code); err == nil {
		return ""
	}
	return code
}

// Explain decodes a refusal in the forms of OpenAI and compatible servers:
// {"error":{"message","code","param"}}, {"error":"…"}, {"message","code"}, and
// {"detail":…}. A body that is not JSON has no message. Param is the upstream's.
func Explain(r *Refusal) Complaint {
	type details struct {
		Message string          `json:"message"`
		Code    json.RawMessage `json:"code"` // a string or a number
		Param   string          `json:"param"`
	}
	var body struct {
		details
		Error  json.RawMessage `json:"error"`
		Detail json.RawMessage `json:"detail"`
	}
	_ = json.Unmarshal(r.Body, &body) // a field of the wrong type does not hide the others
	d := body.details
	if len(body.Error) > 0 && json.Unmarshal(body.Error, &d.Message) != nil {
		_ = json.Unmarshal(body.Error, &d)
	}
	if d.Message == "" && len(body.Detail) > 0 && json.Unmarshal(body.Detail, &d.Message) != nil {
		d.Message = string(body.Detail)
	}
	c := Complaint{Message: d.Message, Param: d.Param}
	if json.Unmarshal(d.Code, &c.Code) != nil {
		c.Code = string(d.Code)
	}
	if c.Code == "null" {
		c.Code = ""
	}
	return c
}

// redactor replaces secrets: the key, the headers' values, and passwords in addresses.
func redactor(opts *Options, base *url.URL) *strings.Replacer {
	var pairs []string
	hide := func(secret string) {
		if len(secret) > 5 { // "true" is no secret
			pairs = append(pairs, secret, "[redacted]")
		}
	}
	hide(opts.APIKey)
	for _, v := range opts.Headers {
		hide(v)
		if _, token, ok := strings.Cut(v, " "); ok { // Bearer …
			hide(token)
		}
	}
	for _, u := range []*url.URL{base, opts.Proxy} {
		if u == nil {
			continue
		}
		if password, ok := u.User.Password(); ok {
			hide(password)
		}
	}
	return strings.NewReplacer(pairs...)
}

// Show returns a message without secrets, cut to a readable length.
func (u *Upstream) Show(message string) string {
	message = u.secrets.Replace(message)
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	return strings.ToValidUTF8(message, "")
}

// retryAfter returns the wait that the upstream requested, in seconds or until a date.
func retryAfter(header http.Header) (time.Duration, bool) {
	value := header.Get("Retry-After")
	if ms, err := strconv.ParseFloat(header.Get("Retry-After-Ms"), 64); err == nil {
		value = strconv.FormatFloat(ms/1000, 'f', -1, 64)
	}
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		if !(seconds >= 0) { // negative or NaN
			return 0, false
		}
		return time.Duration(min(seconds, maxWaitTime.Seconds()) * float64(time.Second)), true
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(0, time.Until(date)), maxWaitTime), true
	}
	return 0, false
}
