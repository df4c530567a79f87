package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

// Each tool shows what it was asked for and what came of it, without characters that a terminal obeys.
func TestToolProgress(t *testing.T) {
	for _, tt := range []struct{ name, events, want string }{
		{"code", `{"type":"response.code_interpreter_call_code.done","output_index":0,"code":"import this\nprint(1)\u001b[2J"}
{"type":"response.output_item.done","output_index":0,"item":{"type":"code_interpreter_call","id":"ci_1",
"status":"completed","code":"import this","container_id":"cntr_1",
"outputs":[{"type":"logs","logs":"one\ntwo\u001b]0;x\u0007\n"},
{"type":"image","url":"data:image/png;base64,AA=="}],
"berth":{"outcome":"error","files":[{"path":"/mnt/data/a","type":"created"}]}}}`,
			"[1] 0s > import this …\n    one\n    two]0;x\n    images: 1\n    error\n    + /mnt/data/a\n"},
		{"file search", `{"type":"response.output_item.done","item":{"type":"file_search_call","id":"fs_1",
"status":"completed","queries":["bars","a\nb\u001b[1m"],"results":null,
"berth":{"results":[{"file_id":"f","filename":"n","score":1,"text":"t"}]}}}`,
			"[1] 0s search the files: \"bars\", \"a b[1m\"\n    passages: 1\n"},
		{"failed file search", `{"type":"response.output_item.done","item":{"type":"file_search_call","id":"fs_1",
"status":"failed","queries":["bars"],"results":null,"berth":{"error":"The store is gone."}}}`,
			"[1] 0s search the files: \"bars\"\n    The store is gone.\n"},
		{"web search", `{"type":"response.output_item.done","item":{"type":"web_search_call","id":"ws_1","status":"completed",
"action":{"type":"search","query":"pumps","queries":["pumps"]}}}
{"type":"response.output_item.done","item":{"type":"web_search_call","id":"ws_2","status":"completed",
"action":{"type":"open_page","url":"https://example.com/\u001b"}}}
{"type":"response.output_item.done","item":{"type":"web_search_call","id":"ws_3","status":"completed",
"action":{"type":"find_in_page","url":"https://example.com/","pattern":"bar"}}}`,
			"[1] 0s search the web: \"pumps\"\n[2] 0s open https://example.com/\n[3] 0s find \"bar\" in https://example.com/\n"},
		{"MCP", `{"type":"response.output_item.done","item":{"type":"mcp_call","id":"mcp_1","status":"completed",
"arguments":"{\"a\":1}","name":"add","server_label":"sums","output":"2\n3","error":null,"approval_request_id":null}}
{"type":"response.output_item.done","item":{"type":"mcp_call","id":"mcp_2","status":"failed","arguments":"{}",
"name":"add","server_label":"sums","output":null,
"error":{"type":"http_error","code":502,"message":"bad\ngateway"},"approval_request_id":null}}`,
			"[1] 0s sums.add {\"a\":1}\n    2\n    3\n[2] 0s sums.add {}\n    bad …\n"},
		{"others", `{"type":"response.output_item.done","item":{"type":"image_generation_call","id":"ig_1",
"status":"completed","result":"AA=="}}
{"type":"response.output_item.done","item":{"type":"computer_call","id":"cc_1","status":"completed","call_id":"c",
"actions":[{"type":"click","x":1,"y":2},{"type":"type","text":"hi"}],"pending_safety_checks":[]}}`,
			"[1] 0s draw an image: completed\n[2] 0s use the computer: click, type\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			p := newProgress(os.Stderr)
			p.w, p.colour, p.started = &out, false, time.Now()
			for d := json.NewDecoder(bytes.NewReader([]byte(tt.events))); d.More(); {
				var ev berth.Event
				if err := d.Decode(&ev); err != nil {
					t.Fatal(err)
				}
				p.show(&ev)
			}
			got := regexp.MustCompile(`\] +[0-9.]+s `).ReplaceAllString(out.String(), "] 0s ")
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Images that code displays are saved beside the files of the container, and take no name of theirs.
func TestOutImages(t *testing.T) {
	drawn := base64.StdEncoding.EncodeToString([]byte("drawn"))
	made(t, [][2]string{{"image-1.png", "of a command"}},
		`{"type":"code_interpreter_call","id":"ci_1","status":"completed",`+
			`"code":"plot()","container_id":"cntr_1","outputs":[{"type":"image","url":"data:image/png;base64,`+drawn+`"},`+
			`{"type":"image","url":"data:image/svg+xml;base64,`+drawn+`"},{"type":"image","url":"https://example.com/a.png"}]}`,
		`{"type":"image_generation_call","id":"ig_1","status":"completed","output_format":"jpeg","result":"`+drawn+`"}`)
	dir := filepath.Join(t.TempDir(), "out")
	for _, args := range [][]string{{}, {"--force"}} {
		code, stderr := commandLine(t, append([]string{"run", "--model", "m", "--out", dir, "draw"}, args...)...)
		if code != 0 {
			t.Fatalf("got %d %s", code, stderr)
		}
		for name, want := range map[string]string{
			"image-1.png": "of a command", "image-2.png": "drawn", "image-3.jpg": "drawn",
		} {
			got, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || string(got) != want {
				t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
			}
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 3 {
			t.Errorf("got %v, %v; want three files", files, err)
		}
	}
}
