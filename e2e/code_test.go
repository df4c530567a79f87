package e2e

import (
	"encoding/base64"
	"encoding/json"
	"image"
	"image/color"
	_ "image/png"
	"strconv"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// A cell is a code_interpreter_call as tests read it.
type cell struct {
	ID, Status, Code string
	Container        string `json:"container_id"`
	Outputs          []struct{ Type, Logs, URL string }
	Berth            struct {
		Outcome   string
		Restarted bool
		Results   []map[string]any
	}
}

// logs returns the text of a cell.
func (c cell) logs() string {
	var text strings.Builder
	for _, o := range c.Outputs {
		text.WriteString(o.Logs)
	}
	return text.String()
}

// cells returns the code interpreter calls of a response.
func cells(t *testing.T, r *responses.Response) []cell {
	t.Helper()
	var all []cell
	for _, it := range r.Output {
		if it.Type != "code_interpreter_call" {
			continue
		}
		var c cell
		if err := json.Unmarshal([]byte(it.RawJSON()), &c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// codeTask returns a request that runs code, one block a call.
func codeTask(previous string, blocks ...string) responses.ResponseNewParams {
	var b strings.Builder
	for _, code := range blocks {
		b.WriteString("```python\n" + code + "\n```\n")
	}
	p := responses.ResponseNewParams{Model: "scripted",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(b.String())},
		Tools: []responses.ToolUnionParam{{OfCodeInterpreter: &responses.ToolCodeInterpreterParam{
			Container: responses.ToolCodeInterpreterContainerUnionParam{OfCodeInterpreterToolAuto: &responses.ToolCodeInterpreterContainerCodeInterpreterContainerAutoParam{}}}}}}
	if previous != "" {
		p.PreviousResponseID = openai.String(previous)
	}
	return p
}

// runCode runs code and returns the calls. It skips the test if the template has no kernel.
func runCode(t *testing.T, s *server, previous string, blocks ...string) (*responses.Response, []cell) {
	t.Helper()
	return runTask(t, s, codeTask(previous, blocks...), len(blocks))
}

// runTask is runCode for a request of codeTask with n blocks.
func runTask(t *testing.T, s *server, task responses.ResponseNewParams, n int) (*responses.Response, []cell) {
	t.Helper()
	r, err := s.client().Responses.New(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	all := cells(t, r)
	if len(all) > 0 && strings.Contains(all[0].logs(), "no Jupyter kernel is installed") {
		t.Skip("the base template has no Jupyter kernel: run make test, which builds it again")
	}
	if r.Status != "completed" || len(all) != n {
		t.Fatalf("%s, %d calls of %d: %s", r.Status, len(all), n, r.RawJSON())
	}
	return r, all
}

// TestCodeInterpreter runs code in a real kernel: state is kept along a chain, a chart is
// an image, rich results are kept, and a kernel that dies is replaced.
func TestCodeInterpreter(t *testing.T) {
	s := newServerWith(t, "shell: {timeout: 15s}\n") // a kernel starts in this time on a busy machine
	first, all := runCode(t, s, "", "x = 20\nprint('started')\nx + 1", "x += 1; x", "1/0")
	if all[0].logs() != "started\n21" || all[1].logs() != "21" {
		t.Errorf("outputs: %q, %q", all[0].logs(), all[1].logs())
	}
	if all[2].Berth.Outcome != "error" || !strings.Contains(all[2].logs(), "ZeroDivisionError: division by zero") ||
		strings.Contains(all[2].logs(), "\x1b") {
		t.Errorf("an exception: %+v", all[2])
	}
	second, all := runCode(t, s, first.ID,
		"import matplotlib.pyplot as plt\nprint('before')\nplt.bar(['a', 'b'], [3, 5], color='red')\nplt.show()\nprint('after')",
		"import pandas as pd\npd.DataFrame({'a': [x]})")
	checkChart(t, all[0])
	if len(all[1].Berth.Results) != 1 || all[1].Berth.Results[0]["text/html"] == nil || !strings.Contains(all[1].logs(),
		"21") {
		t.Errorf("a table: %+v", all[1])
	}
	third, all := runCode(t, s, second.ID, "import time\ntime.sleep(600)", "x",
		"import subprocess\nsubprocess.run(['sleep', '600'])", "x")
	for _, i := range []int{0, 2} {
		if all[i].Berth.Outcome != "timeout" || !strings.Contains(all[i].logs(), "interrupted after 15s") ||
			all[i+1].logs() != "21" {
			t.Errorf("code that takes too long: %+v, then %+v", all[i], all[i+1])
		}
	}
	_, all = runCode(t, s, third.ID, "print('a\\ud800b')", "print('x' * 20_000_000)", "print('next')")
	if all[0].logs() != "a\ufffdb" && all[0].logs() != "a\ufffdb\n" {
		t.Errorf("half of a surrogate pair: %q", all[0].logs())
	}
	if long := all[1].logs(); !strings.HasPrefix(long, "xxxx") || !strings.Contains(long, "left out") ||
		strings.TrimSpace(all[2].logs()) != "next" {
		t.Errorf("20 MB in one message: %.100q, then %q", long, all[2].logs())
	}
	_, all = runCode(t, s, third.ID,
		"import os, signal, threading\nthreading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()\ntime.sleep(600)",
		"'x' in globals()", "%%kernel ir\n1", "exit()", "print('back')")
	if all[0].Berth.Outcome != "died" || !strings.Contains(all[0].logs(), "The kernel has ended: signal: killed.") {
		t.Errorf("a kernel that is killed: %+v", all[0])
	}
	if !all[1].Berth.Restarted || all[1].logs() != "False" || all[1].Container != all[0].Container {
		t.Errorf("the call after that: %+v", all[1])
	}
	if all[2].Berth.Outcome != "failed" || !strings.Contains(all[2].logs(), "there are: bash, javascript, python3") {
		t.Errorf("a kernel that is not installed: %+v", all[2])
	}
	if all[3].Berth.Outcome != "" || !all[4].Berth.Restarted || strings.TrimSpace(all[4].logs()) != "back" {
		t.Errorf("exit() and the call after it: %+v, then %+v", all[3], all[4])
	}
}

// checkChart opens the chart of a call and looks for its red bars.
func checkChart(t *testing.T, c cell) {
	t.Helper()
	if len(c.Outputs) != 3 || c.Outputs[0].Logs != "before" || c.Outputs[1].Type != "image" ||
		c.Outputs[2].Logs != "after" {
		t.Fatalf("outputs: %.300v", c.Outputs)
	}
	data, ok := strings.CutPrefix(c.Outputs[1].URL, "data:image/png;base64,")
	if !ok {
		t.Fatalf("the image is %.100s", c.Outputs[1].URL)
	}
	chart, _, err := image.Decode(base64.NewDecoder(base64.StdEncoding, strings.NewReader(data)))
	if err != nil {
		t.Fatal(err)
	}
	red := 0
	for y := range chart.Bounds().Dy() {
		for x := range chart.Bounds().Dx() {
			if color.NRGBAModel.Convert(chart.At(x, y)) == (color.NRGBA{255, 0, 0, 255}) {
				red++
			}
		}
	}
	if area := chart.Bounds().Dx() * chart.Bounds().Dy(); red < area/5 || red > area*4/5 {
		t.Errorf("%d of %d pixels of the chart are red", red, area)
	}
}

// TestHundredCells runs a hundred cells of one kernel in a chain of ten responses.
func TestHundredCells(t *testing.T) {
	s := newServer(t)
	last, _ := runCode(t, s, "", "n = 0")
	for i := range 10 {
		blocks := make([]string, 10)
		for j := range blocks {
			blocks[j] = "n += 1; n"
		}
		r, all := runCode(t, s, last.ID, blocks...)
		for j, c := range all {
			if want := strconv.Itoa(10*i + j + 1); c.logs() != want {
				t.Fatalf("cell %s printed %q", want, c.logs())
			}
		}
		last = r
	}
}

// TestCodeCrash kills the server while code runs. After a restart the response continues; the
// code ran once, and its kernel has its variables.
func TestCodeCrash(t *testing.T) {
	s := newServer(t)
	first, all := runCode(t, s, "", "x = 7")
	task := codeTask(first.ID, "import os, time\nopen('counter', 'a').write('begun\\n')\nprint('first half')\n"+
		"while not os.path.exists('go'): time.sleep(0.05)\nprint('second half')", "print(open('counter').read(), x)")
	task.Background = openai.Bool(true)
	r, err := s.client().Responses.New(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	s.waitUntil("the code runs", func() bool {
		_, _, err := s.berth("exec", all[0].Container, "--", "test", "-e", "/mnt/data/counter")
		return err == nil
	})
	s.kill()
	s.start()
	c := s.client()
	if _, err := c.Containers.Files.New(t.Context(), all[0].Container,
		openai.ContainerFileNewParams{File: openai.File(strings.NewReader(""), "go", "text/plain")}); err != nil {
		t.Fatalf("the container did not outlive the server: %v", err)
	}
	s.waitUntil("the response has ended", func() bool {
		r, err = c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
		return err == nil && r.Status != "in_progress" && r.Status != "queued"
	})
	all = cells(t, r)
	if len(all) != 2 || all[0].logs() != "first half\nsecond half" || all[1].logs() != "begun\n 7" {
		t.Errorf("%s: %s", r.Status, r.RawJSON())
	}
}
