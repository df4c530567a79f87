package container

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/scripted"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/standard"
)

type noUploads struct{ engine.Files }

// asks returns a function that has the recital model run commands in a response, and returns
// the response when it has ended.
func (h *harness) asks() func(command, fields string) (*berth.Response, error) {
	h.t.Helper()
	st := h.store.Store.(store.Store)
	models, err := model.NewRouter(h.opts.Log, model.Rule{Match: scripted.Name, Provider: scripted.Provider{}})
	if err != nil {
		h.t.Fatal(err)
	}
	events := journal.New(st)
	e := engine.New(engine.Options{Responses: st, Runs: st, Usages: st, Objects: st, Journal: events, Models: models,
		Containers: h.k.provider, Tools: tool.NewRegistry(standard.Kinds(standard.Options{Containers: h.k.access})...),
		Files: noUploads{}, Owner: "test", Log: h.opts.Log})
	h.t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			h.t.Error(err)
		}
	})
	return func(command, fields string) (*berth.Response, error) {
		h.t.Helper()
		var req berth.ResponseRequest
		body := fmt.Sprintf("{\"model\":\"scripted\",\"input\":%q%s}", "```sh\n"+command+"\n```", fields)
		if err := json.Unmarshal([]byte(body), &req); err != nil {
			h.t.Fatal(err)
		}
		r, err := e.Create(h.t.Context(), byMe, &req)
		if err != nil {
			return nil, err
		}
		for _, err := range events.Follow(h.t.Context(), mine, r.ID, 0) {
			if err != nil {
				h.t.Fatal(err)
			}
		}
		rec, err := st.GetResponse(h.t.Context(), mine, r.ID)
		if err != nil {
			h.t.Fatal(err)
		}
		return rec.Body, nil
	}
}

// outputOf returns the output of a response's commands as JSON, with its status.
func outputOf(r *berth.Response) string {
	out, _ := json.Marshal(r.Output)
	return string(r.Status) + " " + string(out)
}

const autoShell = `,"tools":[{"type":"shell","environment":{"type":"container_auto","berth":{"on_expiry":"snapshot"}}}]`

// Chains and conversations continue after their container has ended.
func TestChainContinues(t *testing.T) {
	h, a := newArchive(t)
	ask := h.asks()
	first, err := ask("echo one >f", autoShell)
	if err != nil || first.Status != berth.StatusCompleted {
		t.Fatalf("got %+v, %v", first, err)
	}
	h.pass(time.Hour)
	h.driver.until(0)
	second, err := ask("cat f; echo two >>f", autoShell+`,"previous_response_id":"`+string(first.ID)+`"`)
	if err != nil || !strings.Contains(outputOf(second), `"stdout":"one\n"`) {
		t.Fatalf("got %s, %v", outputOf(second), err)
	}
	h.pass(time.Hour)
	h.driver.until(0)
	fork, err := ask("cat f", autoShell+`,"previous_response_id":"`+string(first.ID)+`"`)
	if err != nil || !strings.Contains(outputOf(fork), `"stdout":"one\n"`) {
		t.Errorf("a fork of the chain: got %s, %v", outputOf(fork), err)
	}
	// A request that names the container gets the reason of its end.
	settled, _ := json.Marshal(second.Tools)
	_, err = ask("cat f", `,"tools":`+string(settled)+`,"previous_response_id":"`+string(second.ID)+`"`)
	wantError(t, err, berth.CodeInvalid, "container_expired", "not used for 20 minutes",
		"its files are in the snapshot 'snap_")
	for _, s := range a.list(t, mine) {
		if err := a.Delete(t.Context(), mine, s.ID); err != nil {
			t.Fatal(err)
		}
	}
	// A lost snapshot is an error, not a silent new container.
	_, err = ask("ls -A", autoShell+`,"previous_response_id":"`+string(second.ID)+`"`)
	wantError(t, err, berth.CodeInvalid, "container_expired", "not used for 20 minutes", "in the snapshot 'snap_",
		"which is gone too", "'berth.on_lost'")
	empty, err := ask("ls -A", strings.Replace(autoShell, `"snapshot"`, `"snapshot","on_lost":"new"`,
		1)+`,"previous_response_id":"`+string(second.ID)+`"`)
	if err != nil || !strings.Contains(outputOf(empty), `"stdout":""`) {
		t.Fatalf("got %s, %v", outputOf(empty), err)
	}
	if again, err := ask("ls -A", autoShell+`,"previous_response_id":"`+string(empty.ID)+`"`); err != nil ||
		!strings.Contains(outputOf(again), `"stdout":""`) {
		t.Errorf("its continuation: got %s, %v", outputOf(again), err)
	}
}

// A chain whose container ended before its snapshot was made gets an error. A chain that
// requested no snapshot gets an empty container, as from the hosted service.
func TestChainLost(t *testing.T) {
	h, _ := newArchive(t)
	ask := h.asks()
	for _, tt := range []struct{ shell, want string }{
		{autoShell, "its files are gone"},
		{strings.Replace(autoShell, "snapshot", "delete", 1), ""},
	} {
		first, err := ask("echo one >f", tt.shell)
		if err != nil {
			t.Fatal(err)
		}
		settled, _ := json.Marshal(first.Tools)
		id := regexp.MustCompile("cntr_[0-9a-z]+").FindString(string(settled))
		h.driver.die(id, sandbox.ReasonHost)
		h.pass(checkInterval)
		second, err := ask("ls -A", tt.shell+`,"previous_response_id":"`+string(first.ID)+`"`)
		if tt.want != "" {
			wantError(t, err, berth.CodeInvalid, "container_expired", "failure of its machine", tt.want)
		} else if err != nil || !strings.Contains(outputOf(second), `"stdout":""`) {
			t.Errorf("got %s, %v", outputOf(second), err)
		}
	}
}

// A response that makes no call leaves no container. Its continuation gets one for its call.
func TestChainWithoutCalls(t *testing.T) {
	h := newHarness(t)
	ask := h.asks()
	const plain = `,"tools":[{"type":"shell","environment":{"type":"container_auto"}}]`
	first, err := ask("", plain+`,"input":"What is 2+2?"`)
	if err != nil || first.Status != berth.StatusCompleted {
		t.Fatalf("got %+v, %v", first, err)
	}
	h.wantContainers(0)
	second, err := ask("echo one", plain+`,"previous_response_id":"`+string(first.ID)+`"`)
	if err != nil || !strings.Contains(outputOf(second), `"stdout":"one\n"`) {
		t.Fatalf("got %s, %v", outputOf(second), err)
	}
	list := h.wantContainers(1)
	if settled, _ := json.Marshal(second.Tools); !strings.Contains(string(settled), string(list[0].ID)) {
		t.Errorf("got tools %s, want container %s", settled, list[0].ID)
	}
}
