package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
)

// A retentionPage is the page of what ends by its age, and of the holds that stop that.
type retentionPage struct {
	Kinds   []retainedRow
	Stored  bool // responses and chat completions may be stored
	Never   bool // the project has set that they are not
	Holds   []holdRow
	More    bool // there are more holds than are shown
	Records []retentionRow
	Next    string // path of older records; "" at the end
	Form    formToken
}

// A retainedRow is a kind of objects with its age.
type retainedRow struct {
	Kind berth.Retained
	Name string
	Ends string // the age at which they end; "" for never
	Own  string // what the project has set; "" for nothing
}

// A holdRow is a legal hold.
type holdRow struct {
	berth.Hold
	Maker string
}

// Releasable reports whether the project may release the hold.
func (h holdRow) Releasable() bool { return h.By == berth.HeldByProject }

// A retentionRow is a record of ended objects.
type retentionRow struct{ berth.RetentionRecord }

// Name returns the kind in words.
func (r retentionRow) Name() string { return retainedName(r.Kind) }

// Policy returns the age at which the objects ended.
func (r retentionRow) Policy() string { return span(r.ExpireAfter) }

// retainedName returns a kind in words.
func retainedName(kind berth.Retained) string {
	name := strings.ReplaceAll(string(kind), "_", " ")
	return strings.ToUpper(name[:min(1, len(name))]) + name[min(1, len(name)):]
}

// spanUnits are the units of ages, the longest first.
var spanUnits = []struct {
	suffix  string
	seconds int64
}{{"d", 24 * 3600}, {"h", 3600}, {"m", 60}, {"s", 1}}

// span writes an age as parseSpan reads it.
func span(seconds int64) string {
	for _, u := range spanUnits {
		if seconds%u.seconds == 0 {
			return strconv.FormatInt(seconds/u.seconds, 10) + u.suffix
		}
	}
	return ""
}

// parseSpan reads an age, such as 30d or 12h, in seconds.
func parseSpan(text string) (int64, error) {
	const most = 100 * 365 * 24 * 3600
	for _, u := range spanUnits {
		if digits, ok := strings.CutSuffix(text, u.suffix); ok {
			if n, err := strconv.ParseInt(digits, 10, 64); err == nil && n > 0 && n <= most/u.seconds {
				return n * u.seconds, nil
			}
		}
	}
	return 0, &failure{http.StatusBadRequest,
		fmt.Sprintf("%.40q is no time: write a number with d, h, m or s, such as 30d. Nothing was changed.", text)}
}

// show serves GET /console/retention.
func (p *retentionPage) show(v *visit) error {
	var of berth.Retention
	if err := v.get("/v1/retention", &of); err != nil {
		return err
	}
	*p = retentionPage{Form: v.formToken(), Stored: of.Store, Never: of.Own.Store != nil && !*of.Own.Store}
	for _, kind := range berth.RetainedKinds {
		if kind == berth.RetainedAudit {
			continue // it belongs to the server
		}
		row := retainedRow{Kind: kind, Name: retainedName(kind)}
		if seconds, ok := of.ExpireAfter[kind]; ok {
			row.Ends = span(seconds)
		}
		if seconds, ok := of.Own.ExpireAfter[kind]; ok {
			row.Own = span(seconds)
		}
		p.Kinds = append(p.Kinds, row)
	}
	var holds list[holdRow]
	if err := v.get("/v1/holds?limit=100", &holds); err != nil {
		return err
	}
	p.Holds, p.More = holds.Data, holds.HasMore
	for i := range p.Holds {
		h := &p.Holds[i]
		if h.Maker = h.Person; h.Maker == "" && h.KeyID != "" {
			h.Maker = v.nameOf(string(h.KeyID))
		}
	}
	var records rows[retentionRow]
	if err := records.read(v, "/v1/retention/records", mostRows); err != nil {
		return err
	}
	p.Records, p.Next = records.Rows, records.Next
	return v.show(http.StatusOK, "retention", "Retention", p)
}

// change serves POST /console/retention: it sets the project's ages, or creates or releases a hold, as the form says.
func (*retentionPage) change(v *visit) error {
	in := v.form.fields
	var err error
	switch in.Get("do") {
	case "save":
		err = saveRetention(v)
	case "hold":
		req := map[string]any{"reason": strings.TrimSpace(in.Get("reason"))}
		if of := strings.TrimSpace(in.Get("of")); strings.HasPrefix(of, "euser_") {
			req["end_user"] = of
		} else if of != "" {
			req["object_id"] = of
		}
		err = v.post("/v1/holds", req, &struct{}{})
	case "release":
		err = v.delete("/v1/holds/" + url.PathEscape(in.Get("hold")))
	default:
		err = &failure{http.StatusBadRequest, "The form is incomplete."}
	}
	if err != nil {
		return err
	}
	return v.redirect("/console/retention")
}

// saveRetention replaces what the project has set.
func saveRetention(v *visit) error {
	if why := v.formToken().Why("POST /v1/retention"); why != "" { // whatever else the form lacks
		return &failure{http.StatusForbidden, why}
	}
	if v.form.fields.Get("sure") == "" {
		return &failure{http.StatusBadRequest, "Confirm that older objects are deleted. Nothing was changed."}
	}
	ages, req := map[berth.Retained]int64{}, map[string]any{}
	for _, kind := range berth.RetainedKinds {
		text := strings.TrimSpace(v.form.fields.Get("age:" + string(kind)))
		if text == "" {
			continue
		}
		seconds, err := parseSpan(text)
		if err != nil {
			return err
		}
		ages[kind] = seconds
	}
	req["expire_after"] = ages
	if v.form.fields.Get("never") != "" {
		req["store"] = false
	}
	return v.post("/v1/retention", req, &struct{}{})
}
