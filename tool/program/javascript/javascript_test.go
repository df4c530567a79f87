package javascript

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/jail"
	"github.com/berth-run/berth/internal/longtest"
)

// The test binary is also the child: the real one is the berth program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Command {
		os.Exit(Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "attack" {
		os.Exit(attack())
	}
	os.Exit(m.Run())
}

// run runs a program to its end. answer answers its calls; nil answers with their arguments.
func run(t *testing.T, s *Session, answer func(Call) Answer) (rounds [][]Call, result Result) {
	t.Helper()
	t.Cleanup(s.Close)
	if answer == nil {
		answer = func(c Call) Answer { return Answer{Value: json.RawMessage(c.Arguments)} }
	}
	var answers []Answer
	for {
		step, err := s.Step(t.Context(), answers)
		if err != nil {
			t.Fatal(err)
		}
		if step.Result != nil {
			return rounds, *step.Result
		}
		rounds = append(rounds, step.Calls)
		answers = nil
		for _, c := range step.Calls {
			answers = append(answers, answer(c))
		}
	}
}

func TestProgram(t *testing.T) {
	r := NewRunner(1)
	for name, test := range map[string]struct {
		code   string
		answer func(Call) Answer
		rounds [][]Call
		want   Result
	}{
		"text": {`text("a"); text({b: [1]}); text(2); text(undefined)`, nil, nil,
			Result{Text: "a\n{\"b\":[1]}\n2\nundefined"}},
		"return":    {`return {a: 1}`, nil, nil, Result{Text: "{\"a\":1}"}},
		"no output": {`const a = 1 // a comment at the end`, nil, nil, Result{}},
		"await": {`const a = await tools.f({n: 1}); const b = await tools["g-h"](); text(a.n + JSON.stringify(b))`,
			nil, [][]Call{{{"f", `{"n":1}`}}, {{"g-h", "{}"}}}, Result{Text: "1{}"}},
		"parallel": {`text((await Promise.all([1, 2].map(n => tools.f({n})))).map(a => a.n))`, nil,
			[][]Call{{{"f", `{"n":1}`}, {"f", `{"n":2}`}}}, Result{Text: "[1,2]"}},
		"not awaited": {`tools.f(); text("end")`, nil, [][]Call{{{"f", "{}"}}}, Result{Text: "end"}},
		"failed call": {`try { await tools.f() } catch (e) { text(e instanceof Error && e.message) }`,
			func(Call) Answer {
				return Answer{Error: "no"}
			}, [][]Call{{{"f", "{}"}}}, Result{Text: "no"}},
		"race": {`text(await Promise.race([tools.f({n: 1}), tools.f({n: 2})]).then(a => a.n))`, nil,
			[][]Call{{{"f", `{"n":1}`}, {"f", `{"n":2}`}}}, Result{Text: "1"}},
		"thrown": {"text('so far')\nconst a = {}\na.b.c", nil, nil,
			Result{Text: "so far", Error: "TypeError: Cannot read property 'c' of undefined\n    at program:3:5"}},
		"thrown text": {"throw 'x'", nil, nil, Result{Error: "x"}},
		"syntax": {"const a = 1\nconst b = )", nil, nil,
			Result{Error: "SyntaxError: program: Line 2:11 Unexpected token )"}},
		"syntax, 1st":   {"const b = )", nil, nil, Result{Error: "SyntaxError: program: Line 1:11 Unexpected token )"}},
		"leaves":        {`}); process.exit(); ({`, nil, nil, Result{Error: notBody}},
		"leaves, call":  {`})(text("out")); (async () => {`, nil, nil, Result{Error: notBody}},
		"leaves, comma": {`}, text("out"), async () => {`, nil, nil, Result{Error: notBody}},
		"leaves, or":    {`}) || (text("out"), async () => {`, nil, nil, Result{Error: notBody}},
		"leaves, args":  {`})(() => {`, nil, nil, Result{Error: notBody}},
		"a comment":     {`text("in") // }); text("out"); ({`, nil, nil, Result{Text: "in"}},
		"import": {`import fs from "fs"`, nil, nil,
			Result{Error: "SyntaxError: program: Line 1:1 Unexpected reserved word"}},
		"stuck": {`await new Promise(() => {})`, nil, nil,
			Result{Error: "The program waits for a promise that nothing settles."}},
		"no such": {`text(typeof require + typeof process + typeof fetch + typeof console + typeof setTimeout)`,
			nil, nil, Result{Text: strings.Repeat("undefined", 5)}},
		"bad argument": {`await tools.f(() => 1)`, nil, nil,
			Result{Error: "TypeError: The arguments of a tool must be an object."}},
		"tools itself": {`await tools; text(Object.keys(tools)); try { tools.x = 1 } catch (e) { text(e.message) }`,
			nil, nil, Result{Text: "[]\ntools cannot be changed."}},
		"replaced": {`JSON.parse = JSON.stringify = Promise.prototype.then = Error = null; text((await tools.f({n: 1})).n)`,
			nil, [][]Call{{{"f", `{"n":1}`}}}, Result{Text: "1"}},
		"own toString": {`throw {toString() { throw 1 }}`, nil, nil,
			Result{Error: "The program failed with a value that has no text."}},
	} {
		t.Run(name, func(t *testing.T) {
			rounds, got := run(t, r.Start(Program{Code: test.code}), test.answer)
			// the words after the place are the parser's
			if at, _, ok := strings.Cut(test.want.Error, "Unexpected"); ok {
				got.Error = got.Error[:min(len(got.Error), len(at))]
				test.want.Error = at
			}
			if name == "bad argument" {
				got.Error, _, _ = strings.Cut(got.Error, "\n")
			}
			if diff := cmp.Diff(test.rounds, rounds) + cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A hostile program is stopped, and the model reads why.
func TestHostile(t *testing.T) {
	r := NewRunner(1)
	slow := []string{"while (Date.now() < 9e15);", `new Proxy({}, {get() { for (;;); }}).x`,
		`text({toJSON() { for (;;); }})`, `throw {toString() { for (;;); }}`,
		`/^(?=a)(a+)+$/.test("a".repeat(60) + "b")`, `const a = []; for (;;) a.push(new Array(1000).fill(a.length))`}
	const long, large = "computed for more than 1 seconds", "MB of memory that it may use"
	for code, want := range map[string]string{
		"let i = 0\nfor (;;) i++": long +
			" and was stopped.\n    at program:2",
		"const f = async () => { for (;;) await 0 }\nawait f()":                            long,
		"while (Date.now() < 9e15);":                                                       long,
		`/^(?=a)(a+)+$/.test("a".repeat(60) + "b")`:                                        long,
		`new Proxy({}, {get() { for (;;); }}).x`:                                           long,
		`text({toJSON() { for (;;); }})`:                                                   long,
		`throw {toString() { for (;;); }}`:                                                 long,
		`"x".repeat(1 << 30).length; new Uint8Array(1 << 30).fill(1); text("not reached")`: large,
		`const a = []; for (;;) a.push(new Array(1000).fill(a.length))`:                    large,
		`let s = "x"; for (;;) s += s`:                                                     "",
		"const f = n => f(n + 1) + 1\nf(0)":                                                "call each other too deeply.\n    at f (program:1:",
		`let a = []; for (let i = 0; i < 1e6; i++) a = [a]; text(JSON.stringify(a))`:       "",
		strings.Repeat("(", 1_000_000):                                                     "",
		`for (;;) text("x".repeat(1 << 16))`:                                               "write 1048576 bytes",
		`await Promise.all(Array.from({length: 5000}, (_, n) => tools.f({n})))`:            "may make 1000 calls",
		`for (;;) { try { await tools.f() } catch { } }`:                                   long,
	} {
		t.Run(code[:min(len(code), 40)], func(t *testing.T) {
			if slices.Contains(slow, code) && !longtest.Enabled() {
				t.Skip("slow, and like the others; set BERTH_TEST_LONG=1")
			}
			_, got := run(t, r.Start(Program{Code: code}), nil)
			if got.Error == "" || !strings.Contains(got.Error, want) {
				t.Errorf("got %.300q, want %q", got.Error, want)
			}
		})
	}
}

// A program that is run again makes the same calls, also in another child.
func TestReplay(t *testing.T) {
	p := Program{Time: 1_700_000_000_000, Seed: 7, Code: `
		const rolls = []
		for (let i = 0; i < 3; i++) rolls.push((await tools.roll({at: new Date().toISOString(), n: Math.random()})).n)
		text([rolls, String(new Date(0))])`}
	r := NewRunner(1)
	rounds, first := run(t, r.Start(p), nil)
	r.idle.Store(maxIdle) // no child may wait
	again := r.Start(p)
	roundsAgain, second := run(t, again, nil)
	if diff := cmp.Diff(rounds, roundsAgain) + cmp.Diff(first, second); diff != "" || len(rounds) != 3 ||
		r.idle.Load() != maxIdle {
		t.Errorf("%s\nafter %d rounds, %d children wait", diff, len(rounds), r.idle.Load())
	}
	if !strings.Contains(first.Text, "Thu Jan 01 1970 00:00:00 GMT+0000") || !strings.Contains(rounds[0][0].Arguments,
		"2023-11-14T22:13:20.000Z") {
		t.Errorf("got %q from %v", first.Text, rounds)
	}
}

// A program ends with the context of its step, and a Session that is closed starts none.
func TestStop(t *testing.T) {
	r := NewRunner(5)
	ctx, cancel := context.WithCancelCause(t.Context())
	s := r.Start(Program{Code: "for (;;);"})
	gone := errors.New("gone")
	go cancel(gone)
	if _, err := s.Step(ctx, nil); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	s.Close()
	if _, err := s.Step(t.Context(), nil); err == nil {
		t.Error("a closed session runs")
	}
	if n := r.idle.Load(); n != 0 {
		t.Errorf("%d children wait", n)
	}
}

// The interpreter's process has no way out, whatever it runs.
func TestJail(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "attack")
	cmd.Env = []string{"GOMAXPROCS=1"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// attack tries what a program that controls the interpreter's process would.
func attack() int {
	if err := jail.Enter(jail.Limits{CPU: 5, Memory: maxMemory}); err != nil {
		fmt.Println(err)
		return 1
	}
	allowed := []string{}
	try := func(what string, err error) {
		if err == nil {
			allowed = append(allowed, what)
		}
	}
	_, err := os.ReadFile("/etc/passwd")
	try("reading a file", err)
	_, err = os.Create("/tmp/berth-attack")
	try("making a file", err)
	_, err = net.Dial("tcp", "127.0.0.1:22")
	try("a connection", err)
	_, err = net.Listen("unix", "@berth-attack")
	try("a socket", err)
	try("a process", exec.Command("/bin/true").Run())
	slices.Sort(allowed)
	if len(allowed) > 0 {
		fmt.Println(allowed)
		return 1
	}
	return 0
}
