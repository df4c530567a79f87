package config

import (
	"strings"
	"testing"
)

func TestSignInConfig(t *testing.T) {
	const good = "sign_in:\n  issuer: https://login.example.com\n  client_id: berth\n  url: https://berth.example.com\n" +
		"  projects:\n  - {group: a, project: proj_a}\n  - {group: b, role: admin}\n"
	c, err := readConfig(t, good)
	if err != nil || c.SignIn.Title() != "login.example.com" || c.SignIn.GroupsClaim != "groups" {
		t.Fatalf("got %+v, %v", c, err)
	}
	for change, want := range map[string]string{
		"https://login|login":                              `berth.yaml:2: sign_in.issuer: "login.example.com" is not a URL`,
		"https://login|http://login":                       "berth.yaml:2: sign_in.issuer: \"http://login.example.com\" must begin with https://",
		"https://login|https://a:b@login":                  "must have no user, query or fragment",
		"  client_id: berth\n|":                            "sign_in.client_id: it is missing",
		"url: https://berth.example.com|url: http://[::1]": "",
		"berth.example.com|berth.example.com/console":      `berth.yaml:4: sign_in.url: "https://berth.example.com/console" must have no path`,
		"  url: https://berth.example.com\n|":              "sign_in.url: \"\" is not a URL",
		"role: admin|role: owner":                          `berth.yaml:7: sign_in.projects[1].role: "owner" must be member, viewer, runner, approver, maintainer, auditor, admin or provisioner`,
		"role: admin|role: admin, project: proj_a":         "berth.yaml:7: sign_in.projects[1].project: an admin belongs to no project",
		"project: proj_a|project: red":                     `berth.yaml:6: sign_in.projects[0].project: "red" is no id of a project`,
		"group: a, |":                                      "sign_in.projects[0].group: it is missing",
		"group: a|gruop: a":                                "berth.yaml:6: unknown key sign_in.projects[0].gruop; did you mean group?",
		"sign_in:|console: false\nsign_in:":                "berth.yaml:1: console: people sign in at the console",
		"  client_id|  scopes: [profile]\n  client_id":     "berth.yaml:3: sign_in.scopes: openid must be one of them",
		"  issuer: https://login.example.com\n|":           "it has no effect without sign_in.issuer",
		"  client_id|  session: 3s\n  client_id":           `sign_in.session: "3s" must be 1m or more`,
	} {
		from, to, _ := strings.Cut(change, "|")
		if !strings.Contains(good, from) {
			t.Fatalf("%q is not in the good configuration", from)
		}
		_, err := readConfig(t, strings.Replace(good, from, to, 1))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", change, err, want)
		}
	}
	t.Setenv("TEST_OIDC_SECRET", "")
	c.SignIn.ClientSecretEnv = "TEST_OIDC_SECRET"
	if _, err := c.SignIn.Secret(); err == nil || !strings.Contains(err.Error(), "TEST_OIDC_SECRET is not set") {
		t.Errorf("a variable that is not set: got %v", err)
	}
}
