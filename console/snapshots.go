package console

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/berth-run/berth"
)

// A snapshotsPage is the list of snapshots.
type snapshotsPage struct {
	Form      formToken
	Snapshots []berth.Snapshot
	Next      string // path of the next page; "" at the end
}

// show serves GET /console/snapshots: the project's snapshots, the newest first.
func (p *snapshotsPage) show(v *visit) error {
	query := url.Values{"limit": {"50"}, "order": {"desc"}}
	if after := v.r.URL.Query().Get("after"); after != "" {
		query.Set("after", after)
	}
	var found list[berth.Snapshot]
	if err := v.get("/v1/snapshots?"+query.Encode(), &found); err != nil {
		return err
	}
	*p = snapshotsPage{Form: v.formToken(), Snapshots: found.Data}
	if found.HasMore {
		p.Next = "/console/snapshots?" + url.Values{"after": {found.LastID}}.Encode()
	}
	return v.show(http.StatusOK, "snapshots", "Snapshots", p)
}

// change serves POST /console/snapshots/{snapshot}: it starts a container from the snapshot, or
// deletes it, as the form says.
func (*snapshotsPage) change(v *visit) error {
	id := v.r.PathValue("snapshot")
	switch v.form.fields.Get("do") {
	case "restore":
		name := strings.TrimSpace(v.form.fields.Get("name"))
		if name == "" {
			name = "restored"
		}
		req := map[string]any{"name": name, "berth": berth.ContainerSource{SnapshotID: berth.SnapshotID(id)}}
		idle, err := idleOf(v, id)
		if err != nil {
			return err
		}
		if idle != nil {
			req["expires_after"] = idle
		}
		var made berth.Container
		if err := v.post("/v1/containers", req, &made); err != nil {
			return err
		}
		return v.redirect("/console/containers/" + url.PathEscape(string(made.ID)))
	case "delete":
		if err := v.exchange(http.MethodDelete, "/v1/snapshots/"+url.PathEscape(id), nil, "", &struct{}{}); err != nil {
			return err
		}
		if from := v.form.fields.Get("from"); from != "" {
			return v.redirect(pathTo("/console/containers", from) + "/snapshots")
		}
		return v.redirect("/console/snapshots")
	}
	return &failure{http.StatusBadRequest, "The form is incomplete."}
}

// idleOf returns the idle time of the container that a snapshot is of; nil if it was deleted.
func idleOf(v *visit, id string) (*berth.ExpiresAfter, error) {
	var s berth.Snapshot
	if err := v.get(pathTo("/v1/snapshots", id), &s); err != nil {
		return nil, err
	}
	c, err := lookAt(v, s.ContainerID)
	if refused(err) || err == nil && c.ExpiresAfter.Minutes == 0 {
		return nil, nil
	}
	return &c.ExpiresAfter, err
}
