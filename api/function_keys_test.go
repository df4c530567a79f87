package api_test

import "testing"

// Keys of a client's own inside a function's definition are ignored, and only there.
func TestFunctionKeys(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	const own = `"name":"f","parameters":{"type":"object","properties":{}},"requires_confirmation":false,"external_execution":false`
	h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"hello","tools":[{"type":"function",`+own+`}]}`)
	h.call(200, "POST", "/v1/chat/completions",
		`{"model":"scripted","messages":[{"role":"user","content":"hello"}],"tools":[{"type":"function","function":{`+own+`}}]}`)
	h.call(400, "POST", "/v1/chat/completions",
		`{"model":"scripted","messages":[{"role":"user","content":"hello"}],"tools":[{"type":"function","function":{"name":"f"},"external_execution":false}]}`)
	h.call(400, "POST", "/v1/responses", `{"model":"scripted","input":"hello","tools":[{"type":"custom",`+own+`}]}`)
}
