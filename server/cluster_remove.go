package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/store"
)

// removePath is the path at which a server removes what it has, for the one that erases an
// archived project. It is served to other servers only.
const removePath = "/cluster/remove"

// A removal names a container or a response.
type removal struct {
	Project   berth.ProjectID   `json:"project"`
	Container berth.ContainerID `json:"container,omitempty"`
	Response  berth.ResponseID  `json:"response,omitempty"`
}

// A remover deletes containers and responses of all servers.
type remover struct {
	*container.Service
	engine  *engine.Engine
	cluster *members // nil if there are no other servers
}

// Delete implements containerRemover.
func (m remover) Delete(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	if m.cluster != nil {
		server, err := m.cluster.Locate(ctx, p, id)
		if err != nil {
			return err
		}
		if server != "" {
			return m.cluster.remove(ctx, server, removal{Project: p, Container: id})
		}
	}
	return m.Service.Delete(ctx, p, id)
}

// A responsesRemover implements responseRemover.
type responsesRemover struct{ remover }

func (m responsesRemover) Delete(ctx context.Context, c berth.Caller, id berth.ResponseID) error {
	err := m.engine.Delete(ctx, c, id)
	if e, ok := errors.AsType[*store.ElsewhereError](err); ok {
		return m.cluster.remove(ctx, e.Server, removal{Project: c.Project, Response: id})
	}
	return err
}

// remove makes another server remove what it has.
func (m *members) remove(ctx context.Context, server string, what removal) error {
	body, err := json.Marshal(what)
	if err != nil {
		return fmt.Errorf("encode removal: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+server+removePath, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("remove at %s: %w", server, err)
	}
	resp, err := m.node.RoundTrip(r)
	if err != nil {
		return unreachable(fmt.Errorf("remove at %s: %w", server, err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("remove at %s: it answered %s", server, resp.Status)
	}
	return nil
}

// serveRemove serves remove.
func (m remover) serveRemove(w http.ResponseWriter, r *http.Request) {
	var what removal
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&what)
	switch {
	case err != nil:
		http.Error(w, "invalid removal", http.StatusBadRequest)
		return
	case what.Container != "":
		err = m.Service.Delete(r.Context(), what.Project, what.Container)
	default:
		err = m.engine.Delete(r.Context(), berth.Caller{Project: what.Project}, what.Response)
	}
	if err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
		m.cluster.Log.Error("failed to remove for another server", "container", what.Container, "response",
			what.Response, "err", err)
		http.Error(w, "the removal failed", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
