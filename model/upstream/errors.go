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
	maxMessage  = 2000      // bytes of it that are shown
	maxWaitTime = time.Hour // that an upstream can ask for
)

// A Refusal is an answer that is an error: an HTTP status, or an error within the
// stream, whose Status is 0 then.
type Refusal struct {
	Status int
	Header http.Header
	Body   []byte
}

// Error leaves the body out; it may hold anything.
func (r *Refusal) Error() string { return fmt.Sprintf("the upstream answered %d", r.Status) }

func refuse(res *http.Response) *Refusal {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal)) // what there is of it says enough
	return &Refusal{Status: res.StatusCode, Header: res.Header, Body: body}
}

// refusing turns errors into refusals before a vendor's SDK sees them: it would
// read them without bound, and only in the form that its vendor gives them.
type refusing struct{ next http.RoundTripper }

func (t refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(req)
	if err != nil || res.StatusCode < http.StatusBadRequest {
		return res, err
	}
	defer res.Body.Close()
	return nil, refuse(res)
}

// A Complaint is what a refusal says.
type Complaint struct {
	Status  int // overrides the refusal's, if not 0
	Message string
	Code    string // the vendor's word for it, which the client is shown
	Param   string // the request's field at fault, by its name in Responses

	RetryAfter time.Duration // if the vendor says it in the body
}

// A mismatch is the error of an answer that is not in the vendor's dialect at all.
type mismatch struct {
	status int
	what   string
	err    error
}

func (m *mismatch) Error() string { return m.what + ": " + m.err.Error() }
func (m *mismatch) Unwrap() error { return m.err }

// failure turns what went wrong into what the caller may know.
func (u *Upstream) failure(ctx, watched context.Context, name string, err error, explain func(*Refusal) Complaint) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(context.Cause(watched), errSilent):
		return &berth.Error{Code: berth.CodeUpstream, Message: u.who() + " fell silent.", Err: errSilent}
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
		return &berth.Error{Code: berth.CodeUpstream, Message: u.who() + " gave an empty answer.", Err: err}
	}
	if m, ok := errors.AsType[*mismatch](err); ok {
		return &berth.Error{Code: berth.CodeUpstream, Err: errors.New(u.Show(m.err.Error())),
			Message: u.Show(fmt.Sprintf("%s answered %d %s; is its base_url right?", u.who(), m.status, m.what))}
	}
	return &berth.Error{Code: berth.CodeUpstream, Message: u.who() + " broke off its answer.", Err: errors.New(u.Show(err.Error()))}
}

// Refused says what a refusal means. What the client can mend is told in the
// upstream's words; of what the operator must mend, the client learns no more than
// that, and the words go to the log.
func (u *Upstream) Refused(r *Refusal, explain func(*Refusal) Complaint, name string) error {
	c := explain(r)
	c.Message = u.Show(c.Message)
	status := cmp.Or(c.Status, r.Status)
	if status == 0 { // some put it into the error
		status, _ = strconv.Atoi(c.Code)
	}
	if status == 0 {
		status = statusOf[c.Code]
	}
	said := errors.New(cmp.Or(c.Message, r.Error()))
	out := &berth.Error{Code: berth.CodeUpstream, Message: u.who() + " failed.", Err: said}
	switch {
	case c.Code == "insufficient_quota":
		out = u.unavailable("has no quota left", fmt.Errorf("%w: %w", model.ErrKey, said))
	case status == http.StatusNotFound && names(c, name):
		return &berth.Error{Code: berth.CodeNotFound, Wire: "model_not_found", Param: "model", Err: said,
			Message: fmt.Sprintf("The model `%s` does not exist or you do not have access to it.%s", name, u.lacks())}
	case status == http.StatusTooManyRequests:
		out = &berth.Error{Code: berth.CodeRateLimited, Message: cmp.Or(c.Message, u.who()+" asks to try later.")}
	case status/100 == 4 && model.SaysTooLong(c.Code, c.Message):
		out = model.TooLong(c.Message)
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge, status == http.StatusUnprocessableEntity:
		out = &berth.Error{Code: berth.CodeInvalid, Wire: wireCode(c.Code), Param: c.Param,
			Message: cmp.Or(c.Message, fmt.Sprintf("%s refused the request (%d).", u.who(), status))}
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly, status >= 500:
		out.Message = fmt.Sprintf("%s failed (%d).", u.who(), status)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		out = u.unavailable(fmt.Sprintf("refused the key that this server has for it (%d)", status), fmt.Errorf("%w: %w", model.ErrKey, said))
	case status == http.StatusPaymentRequired:
		out = u.unavailable(fmt.Sprintf("asks for payment (%d)", status), fmt.Errorf("%w: %w", model.ErrKey, said))
	case status != 0:
		out = u.unavailable(fmt.Sprintf("refused Berth's request (%d)", status), said)
	}
	if after, ok := retryAfter(r.Header); ok {
		return model.WithRetryAfter(out, after)
	}
	if c.RetryAfter > 0 {
		return model.WithRetryAfter(out, min(c.RetryAfter, maxWaitTime))
	}
	return out
}

// unavailable is an error that only the operator can mend; trying again does not help.
func (u *Upstream) unavailable(what string, err error) *berth.Error {
	return &berth.Error{Code: berth.CodeUnavailable, Wire: "upstream_refused", Message: u.who() + " " + what + ".", Err: err}
}

// who is the upstream as the subject of a message for the client.
func (u *Upstream) who() string {
	if u.Name == "" {
		return "The model's server"
	}
	return "The upstream '" + u.Name + "'"
}

// lacks is the sentence that says which upstream lacks a model, or "".
func (u *Upstream) lacks() string {
	if u.Name == "" {
		return ""
	}
	return " " + u.who() + " does not have it."
}

// statusOf are the statuses of errors within a stream that have a name only.
var statusOf = map[string]int{
	"rate_limit_exceeded":     http.StatusTooManyRequests,
	"context_length_exceeded": http.StatusBadRequest,
	"invalid_request_error":   http.StatusBadRequest,
}

// names reports whether a complaint about something not found is about the model,
// not about a path that does not exist.
func names(c Complaint, model string) bool {
	return c.Code == "model_not_found" || c.Code == "DeploymentNotFound" || model != "" && strings.Contains(c.Message, model)
}

// wireCode keeps a code that is a name; some upstreams repeat the status there.
func wireCode(code string) string {
	if _, err := strconv.Atoi(code); err == nil {
		return ""
	}
	return code
}

// Explain finds the complaint in the forms that OpenAI and its imitators have for
// it: {"error":{"message","code","param"}}, {"error":"…"}, {"message","code"}, and
// {"detail":…}. What is no JSON has no message. Param is the upstream's.
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

// redactor replaces what must not be shown: the key, the headers' values, and a
// password in an address.
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

// Show returns a message without secrets, and not longer than somebody will read.
func (u *Upstream) Show(message string) string {
	message = u.secrets.Replace(message)
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	return strings.ToValidUTF8(message, "")
}

// retryAfter reads how long the upstream asks to wait, in seconds or until a date.
func retryAfter(header http.Header) (time.Duration, bool) {
	value := header.Get("Retry-After")
	if ms, err := strconv.ParseFloat(header.Get("Retry-After-Ms"), 64); err == nil {
		value = strconv.FormatFloat(ms/1000, 'f', -1, 64)
	}
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		if !(seconds >= 0) { // not a number, too
			return 0, false
		}
		return time.Duration(min(seconds, maxWaitTime.Seconds()) * float64(time.Second)), true
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(0, time.Until(date)), maxWaitTime), true
	}
	return 0, false
}
