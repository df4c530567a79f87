package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/api/scim"
	"github.com/berth-run/berth/people"
)

// A provisioned server has people and SCIM.
type provisioned struct {
	*house
	people *people.Service
	keys   *house // with the store of the keys
	key    string // of the provider
}

func newProvisioned(t *testing.T) *provisioned {
	first := newHouse(t, nil)
	service := people.New(people.Options{Objects: first.store, Issuer: "https://idp.example", Life: time.Hour,
		Grants: []people.Grant{{Group: "engineers", Project: "proj_red", Role: berth.RoleRunner},
			{Group: "operators", Project: berth.AdminProject, Role: berth.RoleAdmin}}})
	h := newHouse(t, func(o *api.Options) {
		o.Exchange.Keys = service.Keys(first.store)
		o.SCIM = scim.New(service.Provisioning())
	})
	p := &provisioned{h, service, first, ""}
	p.key = first.roleKey(berth.AdminProject, berth.RoleProvisioner, berth.KeyScope{})
	return p
}

// withSCIM serves SCIM, with a store of its own.
func withSCIM(t *testing.T) func(*api.Options) {
	service := people.New(people.Options{Objects: newHouse(t, nil).store})
	return func(o *api.Options) { o.SCIM = scim.New(service.Provisioning()) }
}

// ask sends a request of the provider and returns the answer, which must have a status.
func (p *provisioned) ask(status int, method, path, body string) map[string]any {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.url+"/scim/v2"+path, strings.NewReader(body))
	check(p.t, err)
	r.Header.Set("Authorization", "Bearer "+p.key)
	r.Header.Set("Content-Type", "application/scim+json; charset=utf-8")
	resp, err := http.DefaultClient.Do(r)
	check(p.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	check(p.t, err)
	if resp.StatusCode != status {
		p.t.Fatalf("%s %s %s: got %d %s, want %d", method, path, body, resp.StatusCode, raw, status)
	}
	if status == http.StatusNoContent {
		return nil
	}
	if got := resp.Header.Get("Content-Type"); got != "application/scim+json" {
		p.t.Errorf("%s %s: got the type %s", method, path, got)
	}
	var answer map[string]any
	check(p.t, json.Unmarshal(raw, &answer))
	if status >= 400 && (answer["status"] != fmt.Sprint(status) || answer["detail"] == "" ||
		fmt.Sprint(answer["schemas"]) != "[urn:ietf:params:scim:api:messages:2.0:Error]") {
		p.t.Errorf("%s %s: the error is not SCIM's: %s", method, path, raw)
	}
	return answer
}

// signIn signs a person in and returns the token, or "" for one without access.
func (p *provisioned) signIn(subject, email string, groups ...string) string {
	p.t.Helper()
	s, err := p.people.SignIn(p.t.Context(), people.Claims{Issuer: "https://idp.example", Subject: subject, Email: email,
		Groups: groups})
	if err != nil {
		return ""
	}
	return s.Tokens[0].Secret
}

// admits reports whether the API takes a token.
func (p *provisioned) admits(token string) bool {
	p.t.Helper()
	p.token = token
	resp := p.send(p.t.Context(), "GET", "/v1/whoami", "")
	return resp.StatusCode == http.StatusOK
}

// Okta assigns a person and pushes a group: what it asks first, creates, replaces and patches, as its guide for SCIM
// 2.0 has it. Membership is access, and deactivation ends it with the next request.
func TestSCIMOkta(t *testing.T) {
	p := newProvisioned(t)
	if l := p.ask(200, "GET", "/Users?startIndex=1&count=2", ""); l["totalResults"] != 0.0 || l["Resources"] == nil {
		t.Errorf("the test of the connection: %v", l)
	}
	byName := "/Users?filter=" + url.QueryEscape(`userName eq "ada@example.com"`) + "&startIndex=1&count=100"
	p.ask(200, "GET", byName, "")
	ada := p.ask(201, "POST", "/Users", `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"],
		"userName":"ada@example.com","name":{"givenName":"Ada","familyName":"Lovelace"},
		"emails":[{"primary":true,"value":"ada@example.com","type":"work"}],"displayName":"Ada Lovelace","locale":"en-US",
		"externalId":"00ujl29u0le5T6Aj10h7","groups":[],"password":"1mz050nq","active":true}`)
	id := ada["id"].(string)
	if strings.Contains(fmt.Sprint(ada), "1mz050nq") || ada["active"] != true || ada["userName"] != "ada@example.com" {
		t.Errorf("got %v", ada)
	}
	if l := p.ask(200, "GET", byName, ""); l["totalResults"] != 1.0 {
		t.Errorf("by name: %v", l)
	}
	if p.signIn("00ujl29u0le5T6Aj10h7", "") != "" {
		t.Error("a person without a group signs in")
	}
	g := p.ask(201, "POST", "/Groups", `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:Group"],
		"displayName":"engineers","members":[{"value":"`+id+`","display":"ada@example.com"}]}`)
	group := "/Groups/" + g["id"].(string)
	token := p.signIn("00ujl29u0le5T6Aj10h7", "")
	if token == "" || !p.admits(token) {
		t.Fatal("ada, who is in the group, cannot sign in")
	}
	p.ask(200, "PATCH", group, `{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],"Operations":[
		{"op":"remove","path":"members[value eq \"`+id+`\"]"}]}`)
	if p.admits(token) {
		t.Error("ada has access after her group is gone")
	}
	p.ask(200, "PATCH", group, `{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],"Operations":[
		{"op":"add","path":"members","value":[{"value":"`+id+`","display":"ada@example.com"}]}]}`)
	if !p.admits(token) {
		t.Error("ada has no access in her group")
	}
	p.ask(200, "PATCH", group, `{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],"Operations":[
		{"op":"replace","value":{"id":"`+g["id"].(string)+`","displayName":"others"}}]}`)
	if p.admits(token) {
		t.Error("ada has access after her group was renamed")
	}
	p.ask(200, "PUT", group, `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:Group"],"displayName":"engineers",
		"members":[{"value":"`+id+`"}]}`)
	if got := p.ask(200, "PATCH", "/Users/"+id, `{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
		"Operations":[{"op":"replace","value":{"active":false}}]}`); got["active"] != false || p.admits(token) {
		t.Errorf("after the deactivation: %v", got)
	}
	if p.signIn("00ujl29u0le5T6Aj10h7", "") != "" {
		t.Error("a deactivated person signs in")
	}
	p.ask(200, "PUT", "/Users/"+id, `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"],
		"userName":"ada@example.com","externalId":"00ujl29u0le5T6Aj10h7","active":true}`)
	if p.admits(token) {
		t.Error("the session continues after the deactivation was undone")
	}
	if token = p.signIn("00ujl29u0le5T6Aj10h7", ""); token == "" {
		t.Fatal("ada cannot sign in again")
	}
	p.ask(204, "DELETE", group, "")
	if p.admits(token) {
		t.Error("ada has access without her group")
	}
}

// Entra ID's operations begin with capital letters, its booleans are texts, and its paths have filters.
func TestSCIMEntra(t *testing.T) {
	p := newProvisioned(t)
	p.ask(200, "GET", "/Users?filter="+url.QueryEscape(`externalId eq "58342554-38d6-4ec8-948c-50044d0a33fd"`), "")
	bob := p.ask(201, "POST", "/Users", `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User",
		"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"],"externalId":"bob-in-entra",
		"userName":"Bob@example.com","active":true,"emails":[{"primary":true,"type":"work","value":"bob@example.com"}],
		"meta":{"resourceType":"User"},"name":{"formatted":"Bob B","familyName":"B","givenName":"Bob"},"roles":[]}`)
	id := bob["id"].(string)
	token := p.signIn("a-pairwise-subject", "bob@example.com", "engineers") // known by the address
	if !p.admits(token) {
		t.Fatal("bob cannot sign in")
	}
	patch := func(path string, operations string) map[string]any {
		t.Helper()
		return p.ask(200, "PATCH", path,
			`{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],"Operations":[`+operations+`]}`)
	}
	got := patch("/Users/"+id, `{"op":"Replace","path":"emails[type eq \"work\"].value","value":"robert@example.com"},
		{"op":"Add","path":"name.familyName","value":"Builder"},{"op":"Add","path":"title","value":"ignored"},
		{"op":"Replace","path":"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department","value":"x"},
		{"op":"Replace","value":{"displayName":"Robert","name.givenName":"Robert"}}`)
	if text := fmt.Sprint(got); !strings.Contains(text, "robert@example.com") || !strings.Contains(text, "Builder") ||
		got["displayName"] != "Robert" || !strings.Contains(text, "givenName:Robert") {
		t.Errorf("got %v", got)
	}
	g := p.ask(201, "POST", "/Groups", `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:Group",
		"http://schemas.microsoft.com/2006/11/ResourceManagement/ADSCIM/2.0/Group"],"externalId":"8aa1a0c0",
		"displayName":"operators","meta":{"resourceType":"Group"}}`)
	group := "/Groups/" + g["id"].(string)
	patch(group, `{"op":"Add","path":"members","value":[{"$ref":null,"value":"`+id+`"}]}`)
	if got := p.ask(200, "GET", group+"?excludedAttributes=members", ""); got["members"] != nil {
		t.Errorf("members were excluded: %v", got)
	}
	if got := p.ask(200, "GET", "/Users/"+id, ""); !strings.Contains(fmt.Sprint(got["groups"]), "operators") {
		t.Errorf("got %v", got)
	}
	person, err := p.people.Find(t.Context(), "bob@example.com")
	check(t, err)
	if p.people.Permissions(person, berth.AdminProject) == 0 {
		t.Error("the group of SCIM has no role")
	}
	patch(group, `{"op":"Remove","path":"members","value":[{"$ref":null,"value":"`+id+`"}]}`)
	person, err = p.people.Find(t.Context(), "bob@example.com")
	check(t, err)
	if p.people.Permissions(person, berth.AdminProject) != 0 || !p.admits(token) {
		t.Error("the role stays without the group, or the other group is gone too")
	}
	if got := patch("/Users/"+id, `{"op":"Replace","path":"active","value":"False"}`); got["active"] != false ||
		p.admits(token) || p.signIn("a-pairwise-subject", "bob@example.com", "engineers") != "" {
		t.Errorf("after the deactivation: %v", got)
	}
	patch("/Users/"+id, `{"op":"Replace","path":"active","value":"True"}`)
	if token = p.signIn("a-pairwise-subject", "bob@example.com", "engineers"); !p.admits(token) {
		t.Error("bob cannot sign in again")
	}
	p.ask(204, "DELETE", "/Users/"+id, "")
	if p.admits(token) || p.signIn("a-pairwise-subject", "bob@example.com", "engineers") != "" {
		t.Error("bob has access after his user was deleted")
	}
	p.ask(404, "GET", "/Users/"+id, "")
	p.ask(201, "POST", "/Users", `{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"],"userName":"bob@example.com"}`)
	if !p.admits(p.signIn("a-pairwise-subject", "bob@example.com", "engineers")) {
		t.Error("bob has no access after his user was made anew")
	}
	for _, path := range []string{"/ServiceProviderConfig", "/ResourceTypes", "/ResourceTypes/User", "/Schemas",
		"/Schemas/urn:ietf:params:scim:schemas:core:2.0:Group"} {
		if got := p.ask(200, "GET", path, ""); got["schemas"] == nil {
			t.Errorf("%s: got %v", path, got)
		}
	}
}

// What is not SCIM, or would take what is another's, is refused, and changes nothing.
func TestSCIMHostile(t *testing.T) {
	p := newProvisioned(t)
	const schema = `"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"]`
	const op = `{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],"Operations":`
	ada := p.ask(201, "POST", "/Users", `{`+schema+`,"userName":"ada@example.com","externalId":"1"}`)["id"].(string)
	group := p.ask(201, "POST", "/Groups", `{"displayName":"engineers","members":[{"value":"`+ada+`"}]}`)["id"].(string)
	for _, try := range []struct {
		status             int
		method, path, body string
	}{
		{409, "POST", "/Users", `{` + schema + `,"userName":"ADA@example.com"}`},
		{400, "POST", "/Users", `{` + schema + `}`},
		{400, "POST", "/Users", `{` + schema + `,"userName":" "}`},
		{400, "POST", "/Users", `{` + schema + `,"userName":"a\nb"}`},
		{400, "POST", "/Users", `{` + schema + `,"userName":"` + strings.Repeat("x", 257) + `"}`},
		{400, "POST", "/Users", `{` + schema + `,"userName":7}`},
		{400, "POST", "/Users", `{` + schema + `,"userName":"x","active":"maybe"}`},
		{400, "POST", "/Users", `not json`},
		{400, "POST", "/Users", `[]`},
		{400, "POST", "/Users", strings.Repeat("[", 100000)},
		{413, "POST", "/Users", `{"userName":"` + strings.Repeat("x", 5<<20) + `"}`},
		{404, "PUT", "/Users/scimuser_none", `{` + schema + `,"userName":"x"}`},
		{404, "PATCH", "/Users/scimuser_none", op + `[{"op":"replace","path":"active","value":false}]}`},
		{404, "DELETE", "/Users/scimuser_none", ""},
		{404, "GET", "/Users/" + group, ""},
		{404, "GET", "/Groups/" + ada, ""},
		{404, "GET", "/Schemas/x", ""},
		{400, "PATCH", "/Users/" + ada, `{"Operations":[{"op":"replace","path":"active","value":false}]}`},
		{400, "PATCH", "/Users/" + ada, op + `[]}`},
		{400, "PATCH", "/Users/" + ada, op + `[{"op":"delete","path":"active"}]}`},
		{400, "PATCH", "/Users/" + ada, op + `[{"op":"remove"}]}`},
		{400, "PATCH", "/Users/" + ada, op + `[{"op":"remove","path":"active"}]}`},
		{400, "PATCH", "/Users/" + ada, op + `[{"op":"remove","path":"userName"}]}`},
		{400, "PATCH", "/Users/" + ada, op + `[{"op":"replace","value":"x"}]}`},
		{400, "PATCH", "/Users/" + ada, op + `[{"op":"replace","path":"active","value":{}}]}`},
		{400, "PATCH", "/Users/" + ada, op + `[{"op":"replace","path":"active","value":false},{"op":"replace","path":"userName","value":""}]}`},
		{400, "PATCH", "/Users/" + ada, op + `[` + strings.Repeat(`{"op":"add","path":"x","value":1},`, 1000) + `{"op":"add","path":"x","value":1}]}`},
		{400, "POST", "/Groups", `{"displayName":"*"}`},
		{400, "POST", "/Groups", `{"displayName":""}`},
		{400, "POST", "/Groups", `{"displayName":"x","members":[{"value":"scimuser_none"}]}`},
		{400, "PATCH", "/Groups/" + group, op + `[{"op":"replace","path":"displayName","value":"*"}]}`},
		{400, "PATCH", "/Groups/" + group, op + `[{"op":"add","path":"members[value eq \"x\"]","value":1}]}`},
		{400, "PATCH", "/Groups/" + group, op + `[{"op":"remove","path":"members[display eq \"x\"]"}]}`},
		{400, "PATCH", "/Groups/" + group, op + `[{"op":"add","path":"members","value":"` + ada + `"}]}`},
		{400, "GET", "/Users?filter=" + url.QueryEscape(`userName sw "a"`), ""},
		{400, "GET", "/Users?filter=" + url.QueryEscape(`userName eq "a" or active eq true`), ""},
		{400, "GET", "/Users?filter=" + url.QueryEscape(`password eq "a"`), ""},
		{400, "GET", "/Users?filter=" + url.QueryEscape(`userName eq "`+strings.Repeat("a", 2000)+`"`), ""},
		{400, "GET", "/Users?count=x", ""},
	} {
		p.ask(try.status, try.method, try.path, try.body)
	}
	got := p.ask(200, "GET", "/Users/"+ada, "")
	if got["active"] != true || got["userName"] != "ada@example.com" || !strings.Contains(fmt.Sprint(got["groups"]), "engineers") {
		t.Errorf("a refused request has changed %v", got)
	}
	for i := range 5 {
		p.ask(201, "POST", "/Users", fmt.Sprintf(`{%s,"userName":"user%d"}`, schema, i))
	}
	l := p.ask(200, "GET", "/Users?startIndex=5&count=3", "")
	if l["totalResults"] != 6.0 || l["itemsPerPage"] != 2.0 || l["startIndex"] != 5.0 {
		t.Errorf("a page: %v", l)
	}
	for _, query := range []string{"startIndex=99999999999", "count=-1", "startIndex=7&count=5", "count=0"} {
		if l := p.ask(200, "GET", "/Users?"+query, ""); query != "startIndex=99999999999" && l["itemsPerPage"] != 0.0 {
			t.Errorf("%s: %v", query, l)
		}
	}

	// A user's name is free after a change and after a delete.
	p.ask(200, "PATCH", "/Users/"+ada, op+`[{"op":"replace","path":"userName","value":"countess@example.com"}]}`)
	other := p.ask(201, "POST", "/Users", `{`+schema+`,"userName":"ada@example.com"}`)["id"].(string)
	p.ask(409, "PUT", "/Users/"+other, `{`+schema+`,"userName":"countess@example.com"}`)
	p.ask(204, "DELETE", "/Users/"+ada, "")
	p.ask(200, "PUT", "/Users/"+other, `{`+schema+`,"userName":"countess@example.com"}`)

	// Keys of other roles, and persons, have no access, and the provider's key has no other.
	provider := p.key
	for name, key := range map[string]string{"a project's key": p.keys.roleKey("proj_red", "", berth.KeyScope{}),
		"an auditor's": p.keys.roleKey(berth.AdminProject, berth.RoleAuditor, berth.KeyScope{})} {
		p.key = key
		if got := p.ask(403, "GET", "/Users", ""); !strings.Contains(fmt.Sprint(got), "provision") {
			t.Errorf("%s: got %v", name, got)
		}
	}
	p.key = "sk-none"
	p.ask(401, "GET", "/Users", "")
	p.token = provider
	p.call(403, "GET", "/v1/organization/projects", nil)
	p.call(403, "POST", "/v1/organization/admin_api_keys", `{"name":"x"}`)
	p.call(403, "GET", "/v1/containers", nil)
}
