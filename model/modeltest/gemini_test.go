package modeltest

import (
	"net/http"
	"strings"
	"testing"
)

// The double refuses requests that the vendor would refuse.
func TestGeminiIsStrict(t *testing.T) {
	const (
		user   = `{"role":"user","parts":[{"text":"hi"}]}`
		caller = `{"role":"model","parts":[{"functionCall":{"id":"c1","name":"f","args":{}},"thoughtSignature":"skip_thought_signature_validator"}]}`
		answer = `{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"f","response":{"output":"1"}}}]}`
		tool   = `"tools":[{"functionDeclarations":[{"name":"f"}]}]`
	)
	base := func(contents string, more ...string) string {
		return "{" + strings.Join(append([]string{`"contents":[` + contents + `]`}, more...), ",") + "}"
	}
	config := func(fields string) string { return base(user, `"generationConfig":{`+fields+`}`) }
	parts := func(parts string) string { return base(`{"role":"user","parts":[` + parts + `]}`) }
	reply := func(part string) string {
		return base(user + `,{"role":"model","parts":[` + part + `]},` + answer)
	}
	schema := func(s string) string {
		return base(user, `"tools":[{"functionDeclarations":[{"name":"f","parametersJsonSchema":`+s+`}]}]`)
	}
	h := NewGeminiServer(t, Always(Reply(stop)))
	post := func(model, body string) (int, string) {
		return send(t, h.URL+"/v1beta/models/"+model+":streamGenerateContent?alt=sse", body, http.Header{})
	}
	goods := []string{
		base(user), base(user + "," + user), base(user + "," + caller + "," + answer),
		base(user + "," + caller + "," + answer + "," + user),
		base(user, `"systemInstruction":{"parts":[{"text":"a"}]}`),
		base(user, tool, `"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["f"]}}`),
		config(`"temperature":2,"topP":1,"stopSequences":["a"],"maxOutputTokens":1,"seed":-1`),
		config(`"responseMimeType":"application/json","responseJsonSchema":{"type":"object"}`),
		config(`"thinkingConfig":{"thinkingLevel":"LOW","includeThoughts":true}`),
		config(`"responseLogprobs":true,"logprobs":3`),
		parts(`{"inlineData":{"mimeType":"image/png","data":"aGk="}},{"fileData":{"fileUri":"https://x/a"}}`),
		schema(`{"type":"object","properties":{"a":{"anyOf":[{"type":"string"}]}},"additionalProperties":false}`),
	}
	for i, good := range goods {
		if status, body := post("m", good); status != 200 {
			t.Errorf("good request %d: got %d %s", i, status, body)
		}
	}
	for _, bad := range []string{
		``, `[]`, `{}`, base(``), base(user, `"unknown":1`), base(user, `"model":"m"`),
		base(`{"role":"assistant","parts":[{"text":"a"}]}`), base(`{"role":"system","parts":[{"text":"a"}]},` + user),
		base(`{"role":"user","parts":[]}`), base(`{"role":"user"}`),
		base(caller + "," + answer), base(user + `,{"role":"model","parts":[{"text":"a"}]}`),
		base(user + `,{"role":"model","parts":[{"text":"a"}]},` + caller + "," + answer),
		parts(`{}`), parts(`{"text":""}`), parts(`{"text":"a","inlineData":{"mimeType":"image/png","data":"aGk="}}`),
		parts(`{"type":"text","text":"a"}`), parts(`{"text":"a","thought":true}`),
		parts(`{"text":"a","thoughtSignature":"x"}`), parts(`{"functionCall":{"name":"f"}}`),
		parts(`{"inlineData":{"mimeType":"image/png","data":"%"}}`), parts(`{"inlineData":{"data":"aGk="}}`),
		parts(`{"inlineData":{"mimeType":"image/png","data":"aGk=","displayName":"a"}}`),
		parts(`{"fileData":{"fileUri":"http://x"}}`),
		base(user + "," + answer), base(user + "," + caller), base(user + "," + caller + "," + user),
		base(user + "," + caller + "," + answer + "," + answer),
		base(user + "," + caller + strings.Replace(","+answer, `"f"`, `"g"`, 1)),
		base(user + "," + caller + strings.Replace(","+answer, `"c1"`, `"c2"`, 1)),
		base(user + "," + caller + strings.Replace(","+answer, `{"output":"1"}`, `"1"`, 1)),
		base(user + "," + caller + strings.Replace(","+answer, `]}`, `,{"text":"a"}]}`, 1)),
		base(user + "," + caller + strings.Replace(","+answer, `"response"`, `"tool_use_id":"x","response"`, 1)),
		reply(`{"functionCall":{"id":"c1","name":"f","args":{}}}`),
		reply(`{"functionCall":{"id":"c1","name":"f","args":{}},"thoughtSignature":"aGk="}`),
		reply(`{"functionCall":{"id":"c1","name":"1f","args":{}},"thoughtSignature":"skip_thought_signature_validator"}`),
		reply(`{"functionCall":{"id":"c1","name":"f","args":"{}"},"thoughtSignature":"skip_thought_signature_validator"}`),
		reply(`{"functionResponse":{"name":"f","response":{}}}`),
		base(user, `"systemInstruction":{"parts":[]}`), base(user, `"systemInstruction":{"parts":[{"text":""}]}`),
		base(user, `"tools":[{}]`), base(user, strings.Replace(tool, `"f"`, `"a b"`, 1)),
		base(user, `"tools":[{"functionDeclarations":[{"name":"f"},{"name":"f"}]}]`),
		base(user, `"toolConfig":{"functionCallingConfig":{"mode":"ANY"}}`),
		base(user, tool, `"toolConfig":{"functionCallingConfig":{"mode":"any"}}`),
		base(user, tool, `"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["g"]}}`),
		base(user, tool, `"toolConfig":{"functionCallingConfig":{"mode":"NONE","allowedFunctionNames":["f"]}}`),
		schema(`{"type":"object","patternProperties":{}}`), schema(`{"properties":{"a":{"minLength":1}}}`),
		schema(`{"items":{"const":1}}`), schema(`{"anyOf":[{"pattern":"a"}]}`), schema(`[]`),
		config(`"temperature":3`), config(`"topP":2`), config(`"maxOutputTokens":0`),
		config(`"stopSequences":["1","2","3","4","5","6"]`), config(`"seed":4294967296`), config(`"logprobs":1`),
		config(`"responseJsonSchema":{}`), config(`"responseMimeType":"json"`),
		config(`"thinkingConfig":{"thinkingLevel":"MUCH"}`),
		config(`"thinkingConfig":{"thinkingLevel":"LOW","thinkingBudget":1}`),
		config(`"thinkingConfig":{"thinkingBudget":99999}`),
	} {
		if status, body := post("m", bad); status != 400 {
			t.Errorf("%s: got %d %s, want 400", bad, status, body)
		}
	}
	for model, bad := range map[string]string{
		"gemini-2.0-flash":      config(`"thinkingConfig":{"includeThoughts":true}`),
		"gemini-2.5-flash":      config(`"thinkingConfig":{"thinkingLevel":"LOW"}`),
		"gemini-2.5-pro":        config(`"thinkingConfig":{"thinkingBudget":0}`),
		"gemini-3-pro-preview":  config(`"thinkingConfig":{"thinkingLevel":"MEDIUM"}`),
		"gemini-2.5-flash-lite": base(user, tool, `"generationConfig":{"responseMimeType":"application/json"}`),
		"gemini-2.5-flash-preview": base(user + "," + caller + strings.Replace(","+answer, `"response"`,
			`"parts":[{"inlineData":{"mimeType":"image/png","data":"aGk="}}],"response"`, 1)),
	} {
		if status, body := post(model, bad); status != 400 {
			t.Errorf("%s: %s: got %d %s, want 400", model, bad, status, body)
		}
	}
	if n := len(h.Requests()); n != len(goods) {
		t.Errorf("recorded %d requests, want the %d good ones", n, len(goods))
	}
}
