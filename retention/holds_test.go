package retention_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/retention"
	"github.com/berth-run/berth/store"
)

// Held objects stay, with their parts and what was made from them. Others do not, also of other projects.
func TestHeld(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	ctx := t.Context()
	create := func(p berth.ProjectID, kind store.Kind, parent, id, body string) store.ObjectKey {
		key := store.ObjectKey{Kind: kind, Parent: parent, ID: id}
		check(t, r.db.CreateObjects(ctx, p, &store.Object{ObjectKey: key, CreatedAt: 1, ExpiresAt: 2, Body: json.RawMessage(body)}))
		return key
	}
	create("proj_a", store.KindEndUser, "", "euser_1", `{}`)
	check(t, r.db.CreateObjects(ctx, "proj_a", store.EndUserLink("euser_1", "conv_ann", 1),
		store.EndUserLink("euser_1", "trace:trace_ann", 1)))
	conversation := create("proj_a", store.KindConversation, "", "conv_1", `{}`)
	item := create("proj_a", store.KindConversationItem, "conv_1", "msg_1", `{}`)
	free := create("proj_a", store.KindConversation, "", "conv_2", `{}`)
	theirs := create("proj_b", store.KindConversation, "", "conv_1", `{}`)
	ann := create("proj_a", store.KindConversation, "", "conv_ann", `{}`)
	annsItem := create("proj_a", store.KindConversationItem, "conv_ann", "msg_2", `{}`)
	trace := create("proj_a", store.KindTrace, "", "trace_ann", `{}`)
	snapshot := create("proj_a", store.KindSnapshot, "", "snap_1", `{"snapshot":{"container_id":"cntr_1"}}`)
	annsSnapshot := create("proj_a", store.KindSnapshot, "", "snap_2", `{"snapshot":{"container_id":"cntr_2","end_user":"euser_1"}}`)
	freeTrace := create("proj_a", store.KindTrace, "", "trace_2", `{}`)

	maintainer := berth.Caller{Project: "proj_a", Key: "key_2", Person: "ann@example.com"}
	admin := berth.Caller{Project: berth.AdminProject, Key: "key_1"}
	hold := func(c berth.Caller, h berth.Hold) berth.HoldID {
		t.Helper()
		h.Reason = "a case"
		made, err := r.holds.Create(ctx, "proj_a", c, h)
		check(t, err)
		return made.ID
	}
	own := hold(maintainer, berth.Hold{ObjectID: "conv_1"})
	hold(admin, berth.Hold{EndUser: "euser_1"})
	organizations := hold(admin, berth.Hold{ObjectID: "cntr_1"})

	for name, c := range map[string]struct {
		p    berth.ProjectID
		key  store.ObjectKey
		held bool
	}{
		"an object": {"proj_a", conversation, true}, "a part of it": {"proj_a", item, true},
		"another object": {"proj_a", free, false}, "the same id elsewhere": {"proj_b", theirs, false},
		"what a user has": {"proj_a", ann, true}, "a part of what a user has": {"proj_a", annsItem, true},
		"a user's trace": {"proj_a", trace, true}, "a container's snapshot": {"proj_a", snapshot, true},
		"a user's snapshot": {"proj_a", annsSnapshot, true},
	} {
		err := r.guard.DeleteObject(ctx, c.p, c.key)
		if retention.IsHeld(err) != c.held || (err == nil) == c.held {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for kind, want := range map[store.Kind]string{store.KindTrace: "[trace_2]", store.KindSnapshot: "[]",
		store.KindConversation: "[]"} {
		due, err := r.guard.ExpiredObjects(ctx, kind, time.Unix(3, 0), 1)
		check(t, err)
		ids := []string{}
		for _, d := range due {
			ids = append(ids, d.ID)
		}
		if fmt.Sprint(ids) != want {
			t.Errorf("expired %ss: got %v, want %s", kind, ids, want)
		}
	}
	if err := r.holds.EndUser(ctx, "proj_a", "euser_1"); !retention.IsHeld(err) {
		t.Errorf("the user: got %v", err)
	}
	if err := r.holds.EndUser(ctx, "proj_a", "euser_2"); err != nil {
		t.Errorf("another user: got %v", err)
	}
	if err := r.holds.Any(ctx, "proj_a"); !retention.IsHeld(err) {
		t.Errorf("the project: got %v", err)
	}
	if err := r.holds.Any(ctx, "proj_b"); err != nil {
		t.Errorf("another project: got %v", err)
	}
	check(t, r.guard.DeleteObject(ctx, "proj_a", freeTrace))

	// Only its release ends a hold.
	if err := r.guard.DeleteObject(ctx, "proj_a", store.ObjectKey{Kind: store.KindHold, ID: string(own)}); err == nil {
		t.Error("a hold was deleted as an object")
	}
	if err := r.holds.Release(ctx, "proj_a", maintainer, organizations); berth.ErrorCode(err) != berth.CodeForbidden {
		t.Errorf("a project releases a hold of the organization: got %v", err)
	}
	if err := r.holds.Release(ctx, "proj_b", admin, organizations); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("in another project: got %v", err)
	}
	check(t, r.holds.Release(ctx, "proj_a", maintainer, own))
	check(t, r.guard.DeleteObject(ctx, "proj_a", item))
	entries, _, err := r.log.Latest(ctx, audit.Query{Action: audit.HoldReleased, Before: 1 << 60, Limit: 9})
	check(t, err)
	if len(entries) != 1 || entries[0].Object != string(own) || entries[0].Person != "ann@example.com" ||
		entries[0].Name != "conv_1" || entries[0].Reason != "a case" {
		t.Errorf("the audit record has %+v", entries)
	}
}

// A project shortens what the server retains, and never lengthens it.
func TestSet(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	no, yes := false, true
	s := retention.New(retention.Options{Objects: r.db, Audit: r.log, Holds: r.holds, Clock: r.clock,
		Policies: map[berth.ProjectID]retention.Policy{
			"":       {ExpireAfter: map[berth.Retained]time.Duration{berth.RetainedResponses: 30 * days}},
			"proj_z": {Store: &no, ExpireAfter: map[berth.Retained]time.Duration{berth.RetainedResponses: 90 * days}}}})
	set := func(p berth.ProjectID, own berth.RetentionSettings) (*berth.Retention, error) {
		return s.Set(t.Context(), berth.Caller{Project: p}, own)
	}
	seconds := func(kind berth.Retained, d time.Duration) berth.RetentionSettings {
		return berth.RetentionSettings{ExpireAfter: map[berth.Retained]int64{kind: int64(d / time.Second)}}
	}
	for name, c := range map[string]struct {
		p   berth.ProjectID
		own berth.RetentionSettings
	}{
		"longer": {"proj_a", seconds(berth.RetainedResponses, 31*days)}, "audit": {"proj_a", seconds(berth.RetainedAudit, days)},
		"longer traces": {"proj_a", seconds(berth.RetainedTraces, 31*days)},
		"store":         {"proj_z", berth.RetentionSettings{Store: &yes}},
	} {
		if _, err := set(c.p, c.own); berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	got, err := set("proj_a", seconds(berth.RetainedResponses, 7*days))
	check(t, err)
	if got.ExpireAfter[berth.RetainedResponses] != 7*24*3600 || !got.Store {
		t.Errorf("got %+v", got)
	}
	if got, err = set("proj_a", berth.RetentionSettings{Store: &no}); err != nil || got.Store ||
		got.ExpireAfter[berth.RetainedResponses] != 30*24*3600 {
		t.Errorf("after a change: got %+v, %v", got, err)
	}
	if got, err = s.Get(t.Context(), "proj_z"); err != nil || got.Store || got.ExpireAfter[berth.RetainedResponses] != 90*24*3600 {
		t.Errorf("by the configuration: got %+v, %v", got, err)
	}
}
