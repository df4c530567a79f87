package api

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/audit"
)

// record serves the audit record of the server.
type record struct{ log AuditRecord }

// An AuditRecord is read and verified. *audit.Log implements it.
type AuditRecord interface {
	Latest(ctx context.Context, q audit.Query) (entries []*audit.Entry, more bool, err error)
	Verify(ctx context.Context) (*audit.Report, error)
	Checkpoint() string
}

// An auditList is a page of the audit record.
type auditList struct {
	Object     string  `json:"object"`     // "list"
	Data       any     `json:"data"`       // entries, the newest first
	HasMore    bool    `json:"has_more"`   // there are older ones
	LastID     *string `json:"last_id"`    // the number of the last entry, for after
	Checkpoint string  `json:"checkpoint"` // the record's last signed checkpoint
}

// An auditVerification is the result of a verification of the whole record.
type auditVerification struct {
	Object     string  `json:"object"` // "organization.audit.verification"
	Valid      bool    `json:"valid"`
	Problem    *string `json:"problem"`  // the first thing that is wrong, or null
	First      int64   `json:"first"`    // number of the first entry
	Entries    int64   `json:"entries"`  // that were checked
	Segments   int     `json:"segments"` // files
	Checkpoint string  `json:"checkpoint"`
}

// mayAudit refuses all but admin keys, and the user of a server without keys: the record is about
// all projects.
func (h *record) mayAudit(r *http.Request, c berth.Caller) error {
	if h.log == nil {
		return berth.Errorf(berth.CodeNotFound, "This server does not serve %s %s.", r.Method, r.URL.Path)
	}
	if c.Admin() || c.Project == berth.DefaultProject && c.Key == "" {
		return nil
	}
	return berth.Errorf(berth.CodeForbidden,
		"The audit record is about all projects. Use an admin key, which 'berth key create --admin' on the server creates.")
}

// list serves GET /v1/organization/audit: the entries of the record, the newest first.
func (h *record) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	query := audit.Query{Project: berth.ProjectID(q.Text("project_id")),
		Container: berth.ContainerID(q.Text("container_id")), Action: audit.Action(q.Text("action")),
		Key: berth.KeyID(q.Text("key_id")), Object: q.Text("object_id"),
		Before: q.Integer("after", math.MaxInt64, 0, math.MaxInt64), Limit: int(q.Integer("limit", 20, 1, 100))}
	const latest = 1 << 40
	from, to := q.Integer("start_time", 0, 0, latest), q.Integer("end_time", 0, 0, latest)
	if err := q.End(); err != nil {
		return err
	}
	if err := h.mayAudit(r, c); err != nil {
		return err
	}
	if from > 0 {
		query.From = time.Unix(from, 0)
	}
	if to > 0 {
		query.To = time.Unix(to, 0)
	}
	return h.answer(x, r, query)
}

// answer answers with a page of the record.
func (h *record) answer(x *exchange.Exchange, r *http.Request, query audit.Query) error {
	found, more, err := h.log.Latest(r.Context(), query)
	if err != nil {
		return err
	}
	list := auditList{Object: "list", Data: found, HasMore: more, Checkpoint: h.log.Checkpoint()}
	if found == nil {
		list.Data = []*audit.Entry{}
	} else {
		list.LastID = exchange.OrNull(strconv.FormatInt(found[len(found)-1].Seq, 10))
	}
	return x.JSON(http.StatusOK, list)
}

// verify serves POST /v1/organization/audit/verify: it checks the whole record with the server's
// public key, as berth audit verify does.
func (h *record) verify(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if err := h.mayAudit(r, c); err != nil {
		return err
	}
	if err := x.DiscardBody(r); err != nil {
		return err
	}
	report, err := h.log.Verify(r.Context())
	if err != nil && !audit.Broken(err) {
		return err
	}
	v := auditVerification{Object: "organization.audit.verification", Valid: err == nil}
	if err != nil {
		v.Problem = exchange.OrNull(err.Error())
	}
	if report != nil {
		v.First, v.Entries, v.Segments, v.Checkpoint = report.First, report.Entries, report.Segments, report.Checkpoint
	}
	return x.JSON(http.StatusOK, v)
}
