package berth

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestApprovalPolicy(t *testing.T) {
	for _, c := range []struct {
		policy, command string
		want            bool
	}{
		{`"always"`, "ls", true},
		{`"never"`, "rm -rf /", false},
		{`{"always":{"commands":["rm *","git push*"]}}`, "rm -r x", true},
		{`{"always":{"commands":["rm *","git push*"]}}`, "  git push", true},
		{`{"always":{"commands":["rm *"]}}`, "ls", false},
		{`{"always":{"commands":["*secret*"]}}`, "cat secret.txt", true},
		{`{"never":{"commands":["ls","ls *","git status"]}}`, "ls -la /mnt", false},
		{`{"never":{"commands":["ls","ls *"]}}`, "lsof", true},
		{`{"never":{"commands":["ls *"]}}`, "ls; rm -r x", true},
		{`{"never":{"commands":["ls *"]}}`, "ls $(rm x)", true},
		{`{"never":{"commands":["ls *"]}}`, "ls `rm x`", true},
		{`{"never":{"commands":["ls *"]}}`, "ls > x", true},
		{`{"never":{"commands":["ls *"]}}`, "ls\nrm x", true},
		{`{"never":{"commands":["ls *"]}}`, "ls x &", true},
		{`{"never":{"commands":["*"]},"always":{"commands":["cat *"]}}`, "cat x", true},
		{`{"never":{"commands":["a*b*c"]}}`, "a1b2c", false},
		{`{"never":{"commands":["a*b*c"]}}`, "a1c", true},
		{`{"never":{"commands":["ab*ba"]}}`, "aba", true},
	} {
		var p ApprovalPolicy
		if err := json.Unmarshal([]byte(c.policy), &p); err != nil {
			t.Fatalf("%s: %v", c.policy, err)
		}
		if got := p.Requires(c.command); got != c.want {
			t.Errorf("%s of %q: got %v, want %v", c.policy, c.command, got, c.want)
		}
		raw, err := json.Marshal(p)
		var again ApprovalPolicy
		if err != nil || json.Unmarshal(raw, &again) != nil || !reflect.DeepEqual(p, again) {
			t.Errorf("%s came back as %s, %v", c.policy, raw, err)
		}
	}
	var none *ApprovalPolicy
	if none.Requires("rm") {
		t.Error("no policy requires approval")
	}
	if json.Unmarshal([]byte(`"sometimes"`), new(ApprovalPolicy)) == nil {
		t.Error("sometimes is a policy")
	}
}

func TestBudgetWithin(t *testing.T) {
	server := Budget{Turns: 10, Cost: 5, Failures: 3}
	got := Budget{Turns: 20, Tokens: 100, Cost: 2, Failures: -1}.Within(server)
	if want := (Budget{Turns: 10, Tokens: 100, Cost: 2, Failures: -1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := (Budget{}).Within(server); got != server {
		t.Errorf("got %+v, want the server's", got)
	}
}
