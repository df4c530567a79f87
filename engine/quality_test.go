package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// asks returns a request with a shell in a container and more fields in "berth".
func asks(extension string, fields ...string) string {
	return `{"model":"played","input":"work","tools":[{"type":"shell","environment":{"type":"container_auto"}}],"berth":` + extension + strings.Join(fields,
		"") + `}`
}

func run(command string) turn { return shell("", `{"commands":[`+quoted(command)+`]}`) }

func quoted(s string) string { return string(berth.StringDelta(s)) }

func exits(code int, words string) func(*fakeCall) {
	return func(c *fakeCall) { c.print(words); c.exit(code) }
}

// inTurn ends differently each time that it is run.
func inTurn(codes ...int) func(*fakeCall) {
	return func(c *fakeCall) { code := codes[0]; codes = codes[1:]; c.exit(code) }
}

func TestChecks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		extension string
		turns     []turn
		test      func(*fakeCall)
		want      []string
		status    berth.Status
		reason    string
	}{
		{"passes", `{"checks":{"commands":["test"]}}`, []turn{say("done")}, exits(0, "ok"),
			[]string{"message completed done", "shell_call completed test", "shell_call_output completed [ok exit 0]"},
			berth.StatusCompleted, ""},
		{"is mended", `{"checks":{"commands":["test"]}}`, []turn{say("done"), run("mend"), say("now")}, inTurn(1, 0),
			[]string{"message completed done", "shell_call completed test", "shell_call_output completed [ exit 1]",
				"shell_call completed mend", "shell_call_output completed [mend ran exit 0]", "message completed now",
				"shell_call completed test", "shell_call_output completed [ exit 0]"}, berth.StatusCompleted, ""},
		{"is not mended", `{"checks":{"commands":["test"],"max_rounds":2}}`, []turn{say("done"), say("again")},
			exits(3, ""),
			[]string{"message completed done", "shell_call completed test", "shell_call_output completed [ exit 3]",
				"message completed again", "shell_call completed test", "shell_call_output completed [ exit 3]"},
			berth.StatusIncomplete, berth.ReasonChecksFailed},
		{"an answer that was cut is not checked", `{"checks":{"commands":["test"]}}`,
			[]turn{{model.Text{Text: "do"}, model.Finish{Reason: model.FinishLength}}}, exits(0, ""),
			[]string{"message incomplete do"}, berth.StatusIncomplete, "max_output_tokens"},
	} {
		runInBubble(t, c.name, func(t *testing.T) {
			h := newHouse(t, c.turns...)
			h.containers.commands["test"] = c.test
			r := h.final(h.create(asks(c.extension)).ID)
			if diff := cmp.Diff(c.want, outline(t, r.Output)); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			wantEnd(t, r, c.status, c.reason)
			if told := h.model.requests[0].Instructions; !strings.Contains(told, "\ntest\n") {
				t.Errorf("the model was shown %q, not the checks", told)
			}
		})
	}
}

func wantEnd(t *testing.T, r *berth.Response, status berth.Status, reason string) {
	t.Helper()
	got := ""
	if r.IncompleteDetails != nil {
		got = r.IncompleteDetails.Reason
	}
	if r.Status != status || got != reason {
		t.Errorf("got %s %q, want %s %q", r.Status, got, status, reason)
	}
}

// A check that a crash interrupts is resumed and counts once.
func TestChecksAfterCrash(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("done"))
		began := make(chan *fakeCall, 1)
		h.containers.commands["test"] = func(c *fakeCall) { began <- c }
		id := h.create(asks(`{"checks":{"commands":["test"]}}`, `,"background":true`)).ID
		call := <-began
		h.stop()
		h.start()
		if err := h.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		call.exit(0)
		r := h.final(id)
		want := []string{"message completed done", "shell_call completed test", "shell_call_output completed [ exit 0]"}
		if diff := cmp.Diff(want, outline(t, r.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		wantEnd(t, r, berth.StatusCompleted, "")
	})
}

func TestChecksNeedAContainer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		for _, tools := range []string{`[]`, `[{"type":"shell","environment":{"type":"local"}}]`} {
			_, err := h.tryCreate(t.Context(),
				`{"model":"played","input":"x","tools":`+tools+`,"berth":{"checks":{"commands":["true"]}}}`)
			if berth.ErrorCode(err) != berth.CodeInvalid {
				t.Errorf("tools %s: got %v", tools, err)
			}
		}
	})
}

func TestBudget(t *testing.T) {
	t.Parallel()
	again := slices.Repeat([]turn{run("fails")}, 20)
	waits := slices.Repeat([]turn{run("waits")}, 20)
	for _, c := range []struct {
		name, budget string
		turns        []turn
		calls        int // that are made
		reason       string
	}{
		{"turns", `{"max_turns":3}`, waits, 3, berth.ReasonTurns},
		{"tokens", `{"max_total_tokens":30}`, waits, 2, berth.ReasonTokens},
		{"the same failure", `{"max_repeated_failures":4}`, again, 4, berth.ReasonFailures},
		{"the same failure, by default", `{}`, again, 10, berth.ReasonFailures},
		{"a success between", `{"max_repeated_failures":3}`,
			[]turn{run("fails"), run("fails"), run("waits"), run("fails"), run("fails")}, 5, ""},
		{"other failures between", `{"max_repeated_failures":2}`,
			[]turn{run("fails"), run("fails too"), run("fails"), run("fails too")}, 4, ""},
		{"nothing new", `{"max_repeated_calls":3}`, waits, 4, berth.ReasonRepeats},
		{"nothing new, in turns", `{"max_repeated_calls":3}`,
			[]turn{run("a"), run("b"), run("a"), run("b"), run("a"), run("b")}, 5, berth.ReasonRepeats},
		{"something new", `{"max_repeated_calls":3}`,
			[]turn{run("a"), run("a"), run("a"), run("new"), run("a"), run("a")}, 6, ""},
		{"no bound", `{"max_repeated_failures":-1,"max_repeated_calls":-1}`, again, 20, ""},
	} {
		runInBubble(t, c.name, func(t *testing.T) {
			h := newHouse(t, append(slices.Clone(c.turns), say("done"))...)
			h.containers.commands["fails"] = exits(1, "")
			h.containers.commands["fails too"] = exits(1, "")
			r := h.final(h.create(asks(`{"budget":` + c.budget + `}`)).ID)
			status := berth.StatusIncomplete
			if c.reason == "" {
				status = berth.StatusCompleted
			}
			wantEnd(t, r, status, c.reason)
			if got := len(h.containers.ran); got != c.calls {
				t.Errorf("%d calls were made, want %d", got, c.calls)
			}
		})
	}
}

// A cost budget counts the turns of upstreams with prices, and ends a response before the
// turn that would exceed it.
func TestBudgetOfCost(t *testing.T) {
	t.Parallel()
	costs := func(command, amount string) turn {
		value, err := berth.ParseAmount(amount)
		if err != nil {
			t.Fatal(err)
		}
		f := model.Finish{Reason: model.FinishStop,
			Usage: berth.Usage{InputTokens: 10, OutputTokens: 5, TotalTokens: 15}, Origin: model.Origin{Upstream: "a",
				Model: "m"}}
		if value > 0 {
			f.Cost = &berth.Cost{Value: value, Currency: "usd"}
		}
		return append(run(command), f)
	}
	for _, c := range []struct {
		name, asked, server string
		amount              string // of each turn
		calls               int
		reason              string
	}{
		{"asked", `{"max_cost":0.03}`, "", "0.01", 3, berth.ReasonCost},
		{"between two turns", `{"max_cost":0.025}`, "", "0.01", 3, berth.ReasonCost},
		{"the server's", `{}`, "0.02", "0.01", 2, berth.ReasonCost},
		{"less than the server's", `{"max_cost":0.01}`, "0.04", "0.01", 1, berth.ReasonCost},
		{"more than the server's", `{"max_cost":9}`, "0.04", "0.01", 4, berth.ReasonCost},
		{"enough", `{"max_cost":1}`, "", "0.01", 6, ""},
		{"without prices", `{"max_cost":0.01}`, "", "0", 6, ""},
	} {
		runInBubble(t, c.name, func(t *testing.T) {
			var turns []turn
			for i := range 6 {
				turns = append(turns, costs(fmt.Sprint("step ", i), c.amount))
			}
			h := newHouse(t, append(turns, say("done"))...)
			if c.server != "" {
				h.engine.Limits.Budget.Cost, _ = berth.ParseAmount(c.server)
			}
			r := h.final(h.create(asks(`{"budget":` + c.asked + `}`)).ID)
			status := berth.StatusIncomplete
			if c.reason == "" {
				status = berth.StatusCompleted
			}
			wantEnd(t, r, status, c.reason)
			if got := len(h.containers.ran); got != c.calls {
				t.Errorf("%d calls were made, want %d", got, c.calls)
			}
		})
	}
}

// When the time budget is used up, running commands end and finished output stays.
func TestBudgetOfTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{model.Text{Text: "I begin."}, hang{}})
		start := time.Now()
		r := h.final(h.create(asks(`{"budget":{"max_seconds":7}}`)).ID)
		wantEnd(t, r, berth.StatusIncomplete, berth.ReasonSeconds)
		if d := time.Since(start); d != 7*time.Second {
			t.Errorf("the response ended after %s", d)
		}
		if diff := cmp.Diff([]string{"message incomplete I begin."}, outline(t, r.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
	})
}

func TestApprovals(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const policy = `{"require_approval":{"always":{"commands":["rm *"]}}}`
		h := newHouse(t, turn{model.Text{Text: "I clean up."},
			model.Call{Index: 0, ID: "call_1", Name: "shell", Arguments: `{"commands":["rm -r x"]}`},
			model.Call{Index: 1, ID: "call_2", Name: "shell", Arguments: `{"commands":["ls"]}`}}, say("gone"),
			run("rm y"), say("well"))
		first := h.final(h.create(asks(policy)).ID)
		if diff := cmp.Diff([]string{"message completed I clean up.", "mcp_approval_request ",
			"shell_call completed ls", "shell_call_output completed [ls ran exit 0]"},
			outline(t, first.Output)); diff != "" {
			t.Fatalf("output (-want +got):\n%s", diff)
		}
		wantEnd(t, first, berth.StatusCompleted, "")
		var request berth.ApprovalRequest
		decode(t, first.Output[1], &request)
		if request.Name != "shell" || request.Arguments != `{"commands":["rm -r x"]}` ||
			request.ServerLabel != "berth" {
			t.Errorf("got %+v", request)
		}
		answer := func(previous *berth.Response, id string, approve bool, more string) string {
			raw, _ := json.Marshal(berth.ApprovalResponse{ID: berth.NewID(berth.PrefixApproval),
				Type: berth.ItemApprovalResponse, ApprovalRequestID: id, Approve: approve, Reason: more})
			return `,"previous_response_id":` + quoted(string(previous.ID)) + `,"input":[` + string(raw) + `]`
		}
		second := h.final(h.create(asks(policy, answer(first, request.ID, true, ""))).ID)
		if diff := cmp.Diff([]string{"shell_call completed rm -r x", "shell_call_output completed [rm -r x ran exit 0]",
			"message completed gone"}, outline(t, second.Output)); diff != "" {
			t.Errorf("output after approval (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"message  work", "message completed I clean up.",
			"function_call completed shell{\"commands\":[\"ls\"],\"max_output_length\":null,\"timeout_ms\":null}",
			"function_call_output completed",
			"function_call completed shell{\"commands\":[\"rm -r x\"],\"max_output_length\":null,\"timeout_ms\":null}",
			"function_call_output completed"}, lowered(t, h.model.requests[1].Items)); diff != "" {
			t.Errorf("the model saw (-want +got):\n%s", diff)
		}
		if _, err := h.tryCreate(t.Context(), asks(policy, answer(second, request.ID, true, ""))); berth.ErrorCode(
			err) != berth.CodeInvalid {
			t.Errorf("a second answer: got %v", err)
		}
		if _, err := h.tryCreate(t.Context(), asks(policy, answer(second, "mcpr_none", true, ""))); berth.ErrorCode(
			err) != berth.CodeInvalid {
			t.Errorf("an answer to nothing: got %v", err)
		}

		third := h.final(h.create(asks(policy, `,"previous_response_id":`+quoted(string(second.ID)))).ID)
		decode(t, third.Output[0], &request)
		ran := len(h.containers.ran)
		fourth := h.final(h.create(asks(policy, answer(third, request.ID, false, "Keep y."))).ID)
		if diff := cmp.Diff([]string{"message completed well"}, outline(t, fourth.Output)); diff != "" ||
			len(h.containers.ran) != ran {
			t.Errorf("after a refusal %v ran, output (-want +got):\n%s", h.containers.ran[ran:], diff)
		}
		seen := h.model.requests[3].Items
		if last := string(seen[len(seen)-1].Raw()); !strings.Contains(last, "did not approve") ||
			!strings.Contains(last, "Keep y.") {
			t.Errorf("the model was shown %s", last)
		}
		if slices.Contains(h.containers.ran, "rm y") {
			t.Error("what was not approved was run")
		}
	})
}

func lowered(t *testing.T, items []berth.Item) []string {
	var out []string
	for _, line := range outline(t, items) {
		out = append(out, strings.TrimSpace(line))
	}
	return out
}
