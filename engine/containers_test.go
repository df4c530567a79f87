package engine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/model"
)

func (h *house) wantHistory(want ...string) {
	h.t.Helper()
	h.stop() // waits for what happens after a response's end
	h.containers.mu.Lock()
	got := h.containers.history
	h.containers.mu.Unlock()
	h.start()
	if diff := cmp.Diff(want, got); diff != "" {
		h.t.Errorf("(-want +got):\n%s", diff)
	}
}

// A response that makes no call gives its container back, as does a request that is refused.
func TestContainerWithoutCalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("four"))
		h.final(h.create(`{` + withShell + `,"input":"2+2?"}`).ID)
		h.wantHistory("release cntr_1")
		_, err := h.tryCreate(t.Context(), `{`+strings.Replace(withShell, `"tools":[`,
			`"tools":[{"type":"shell","environment":{"type":"container_auto"}},`, 1)+`,"input":"x"}`)
		if berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("two shells: got %v", err)
		}
		h.wantHistory("release cntr_1")
	})
}

// A container is created while the model writes its first call.
func TestContainerBegins(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, shell("call_1", `{"commands":["ls"]}`), shell("call_2", `{"commands":["ls"]}`), say("done"))
		h.final(h.create(`{` + withShell + `,"input":"list"}`).ID)
		h.wantHistory("begin cntr_1", "release cntr_1")
	})
}

// A prepared response leaves a container to the one that continues it.
func TestContainerPrepared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		if _, err := h.tryCreate(t.Context(), `{`+withShell+`,"input":"x"}`, engine.Prepared()); err != nil {
			t.Fatal(err)
		}
		h.wantHistory("begin cntr_1", "release cntr_1")
	})
}

// A resumed run reserves its container again, unless a call has used it or the environment had
// settings.
func TestContainerResumed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body string
		turns      []turn
		want       []string
	}{
		{"unused", withShell, []turn{{model.Text{Text: "I was about"}, hang{}}, say("done")},
			[]string{"release cntr_1", "reserve cntr_1", "release cntr_1"}},
		{"used", withShell, []turn{shell("call_1", `{"commands":["ls"]}`), {hang{}}, say("done")},
			[]string{"begin cntr_1", "release cntr_1"}},
		{"with settings", strings.Replace(withShell, `"container_auto"`, `"container_auto","memory_limit":"4g"`, 1),
			[]turn{{hang{}}, say("done")}, []string{"release cntr_1"}},
	} {
		runInBubble(t, tt.name, func(t *testing.T) {
			h := newHouse(t, tt.turns...)
			id := h.create(`{` + tt.body + `,"input":"x"}`).ID
			for range len(tt.turns) - 1 {
				<-h.model.called
			}
			h.stop()
			h.start()
			if err := h.engine.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			h.final(id)
			h.wantHistory(tt.want...)
		})
	}
}
