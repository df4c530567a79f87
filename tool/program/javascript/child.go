package javascript

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/jail"
)

const (
	maxStack = 64 << 20 // bytes of the interpreter's own stack
	maxDepth = 10_000   // of the program's calls of functions
	maxText  = 1 << 20  // bytes of what a program writes
	maxTrace = 8        // lines of a stack trace
	// watchInterval is the time between two looks at the processor's clock.
	watchInterval = 20 * time.Millisecond
)

// prelude makes the objects that a program sees.
//
//go:embed prelude.js
var prelude string

// Main runs the program that is the first line of stdin. Further lines are answers. It gives
// up all that it does not need first. args are those after Command: the seconds that the
// program may compute. It returns the exit status.
func Main(args []string) int {
	if len(args) != 1 {
		return 1
	}
	cpu, err := strconv.Atoi(args[0])
	if err != nil {
		return 1
	}
	debug.SetMaxStack(maxStack)
	time.Local = time.UTC
	// The hard limit lies above that of watch, which can name the place in the program.
	if err := jail.Enter(jail.Limits{CPU: cpu + 2, Memory: maxMemory}); err != nil {
		fmt.Fprintln(os.Stderr, "failed to drop privileges:", err)
		return exitUnlocked
	}
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	line, err := readLine(in)
	if err != nil {
		return 1
	}
	var p Program
	if err := json.Unmarshal(line, &p); err != nil {
		return 1
	}
	i := newInterpreter(p)
	go i.watch(cpu)
	step := i.start(p.Code)
	for {
		if err := out.Encode(step); err != nil || step.Result != nil {
			return 0
		}
		// An answer may be larger than a call: the server bounds it.
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var answers []Answer
		if err := json.Unmarshal(line, &answers); err != nil {
			return 1
		}
		step = i.resume(answers)
	}
}

// An interpreter runs one program.
type interpreter struct {
	vm      *goja.Runtime
	parse   goja.Callable // JSON.parse, which the program may replace
	failure goja.Callable // makes an Error
	print   goja.Callable // text()
	main    *goja.Promise // of the program; nil until it runs

	calls   []Call    // not yet returned
	waiting []settler // of the calls in calls, or of those that were returned
	made    int
	text    strings.Builder
	lines   int // of the code
}

// A settler settles the promise of a call.
type settler struct{ resolve, reject func(any) error }

func newInterpreter(p Program) *interpreter {
	i := &interpreter{vm: goja.New()}
	i.vm.SetMaxCallStackSize(maxDepth)
	random := rand.New(rand.NewPCG(p.Seed, p.Seed))
	i.vm.SetRandSource(random.Float64)
	i.vm.SetTimeSource(func() time.Time { return time.UnixMilli(p.Time).UTC() })
	setUp, err := i.vm.RunScript("prelude", prelude)
	if err != nil {
		panic(err)
	}
	run, _ := goja.AssertFunction(setUp)
	made, err := run(nil, i.vm.ToValue(i.call), i.vm.ToValue(i.write))
	if err != nil {
		panic(err)
	}
	object := made.ToObject(i.vm)
	i.parse, _ = goja.AssertFunction(object.Get("parse"))
	i.failure, _ = goja.AssertFunction(object.Get("failure"))
	i.print, _ = goja.AssertFunction(object.Get("text"))
	return i
}

// watch stops the program when it has computed for cpu seconds.
func (i *interpreter) watch(cpu int) {
	for range time.Tick(watchInterval) {
		var used unix.Timespec
		if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &used) == nil &&
			time.Duration(used.Nano()) > time.Duration(cpu)*time.Second {
			i.vm.Interrupt(fmt.Sprintf(tooLong, cpu))
			return
		}
	}
}

// opening precedes the code, which may wait for calls as a module may.
const opening, closing = "(async () => {", "\n})()"

const notBody = "SyntaxError: The program must be the body of one async function."

// isBody reports whether the code between opening and closing is the body of their function, and does not close
// it to open another. It returns true for a source with a syntax error, which running it reports.
func isBody(source string) bool {
	program, err := goja.Parse("program", source)
	if err != nil {
		return true
	}
	if len(program.Body) != 1 {
		return false
	}
	statement, ok := program.Body[0].(*ast.ExpressionStatement)
	if !ok {
		return false
	}
	call, ok := statement.Expression.(*ast.CallExpression)
	if !ok || len(call.ArgumentList) > 0 {
		return false
	}
	function, ok := call.Callee.(*ast.ArrowFunctionLiteral)
	return ok && int(function.Idx1())-program.File.Base() == len(source)-len(")()")
}

// start runs the program up to its first calls.
func (i *interpreter) start(code string) Step {
	i.lines = strings.Count(code, "\n") + 1
	source := opening + code + closing
	if !isBody(source) {
		return i.end(notBody)
	}
	value, err := i.vm.RunScript("program", source)
	if err != nil {
		return i.fail(err)
	}
	i.main, _ = value.Export().(*goja.Promise)
	if i.main == nil {
		return i.end(notBody)
	}
	return i.step()
}

// resume settles the promises of the last calls in their order, and runs what waited for
// them.
func (i *interpreter) resume(answers []Answer) Step {
	settled := i.waiting
	i.calls, i.waiting = nil, nil
	for n, s := range settled {
		var a Answer
		if n < len(answers) {
			a = answers[n]
		}
		if err := i.settle(s, a); err != nil {
			return i.fail(err)
		}
	}
	return i.step()
}

func (i *interpreter) settle(s settler, a Answer) error {
	if a.Error != "" {
		reason, err := i.failure(nil, i.vm.ToValue(a.Error))
		if err != nil {
			return err
		}
		return s.reject(reason)
	}
	value := goja.Undefined()
	if len(a.Value) > 0 {
		var err error
		if value, err = i.parse(nil, i.vm.ToValue(string(a.Value))); err != nil {
			return err
		}
	}
	return s.resolve(value)
}

// step returns the calls that the program has made, or its result if it waits for nothing.
func (i *interpreter) step() Step {
	switch state := i.main.State(); {
	case state == goja.PromiseStateRejected:
		return i.end(i.describe(i.main.Result()))
	case len(i.calls) > 0: // also of a program that has not waited for them
		return Step{Calls: i.calls}
	case state == goja.PromiseStatePending:
		return i.end("The program waits for a promise that nothing settles.")
	}
	if value := i.main.Result(); i.text.Len() == 0 && value != nil && !goja.IsUndefined(value) {
		if _, err := i.print(nil, value); err != nil {
			return i.fail(err)
		}
	}
	return i.end("")
}

// call is a call of a tool. It returns a promise.
func (i *interpreter) call(name, arguments string) *goja.Promise {
	if i.made++; i.made > MaxCalls {
		panic(i.vm.NewTypeError("A program may make %d calls of tools.", MaxCalls))
	}
	p, resolve, reject := i.vm.NewPromise()
	i.calls = append(i.calls, Call{Name: name, Arguments: arguments})
	i.waiting = append(i.waiting, settler{resolve, reject})
	return p
}

// write adds a line to the program's output.
func (i *interpreter) write(text string) {
	if i.text.Len()+len(text) > maxText {
		panic(i.vm.NewTypeError("A program may write %d bytes with text().", maxText))
	}
	if i.text.Len() > 0 {
		i.text.WriteByte('\n')
	}
	i.text.WriteString(text)
}

func (i *interpreter) end(failure string) Step {
	return Step{Result: &Result{Text: strings.ToValidUTF8(i.text.String(), "\uFFFD"), Error: failure}}
}

// fail returns the result of a program that cannot continue.
func (i *interpreter) fail(err error) Step {
	var interrupted *goja.InterruptedError
	var deep *goja.StackOverflowError
	var thrown *goja.Exception
	switch {
	case errors.As(err, &interrupted):
		return i.end(fmt.Sprint(interrupted.Value()) + i.trace(interrupted.String()))
	case errors.As(err, &deep):
		return i.end("RangeError: The program's functions call each other too deeply." + i.trace(deep.String()))
	case errors.As(err, &thrown):
		text := i.describe(thrown.Value())
		if wrong, ok := strings.CutPrefix(text, "SyntaxError: SyntaxError: "); ok { // of the code itself
			text = "SyntaxError: " + place(wrong)
		}
		return i.end(text)
	}
	return i.end(err.Error())
}

// describe returns what a program has thrown, with the lines where it did.
func (i *interpreter) describe(thrown goja.Value) (text string) {
	if thrown == nil {
		return "The program failed."
	}
	err := i.vm.Try(func() {
		text = thrown.String()
		if o, ok := thrown.(*goja.Object); ok {
			if stack := o.Get("stack"); stack != nil && !goja.IsUndefined(stack) {
				text += i.trace(stack.String())
			}
		}
	})
	if err != nil || text == "" {
		return "The program failed with a value that has no text."
	}
	return text
}

var (
	frame   = regexp.MustCompile(`(?m)^\s*at ([^\n]*?program:(\d+):\d+)`)
	first   = regexp.MustCompile(`program:1:(\d+)`)
	firstIn = regexp.MustCompile(`\bLine 1:(\d+)`)
)

// trace returns the first lines of a stack trace that are in the program.
func (i *interpreter) trace(stack string) string {
	var lines strings.Builder
	for _, m := range frame.FindAllStringSubmatch(stack, maxTrace) {
		if line, err := strconv.Atoi(m[2]); err != nil || line > i.lines {
			continue // the end of the async function around the code
		}
		text := place(m[1])
		if strings.Contains(text, "(") {
			text += ")"
		}
		lines.WriteString("\n    at " + text)
	}
	return lines.String()
}

// place corrects the columns of the first line, which begins with the opening.
func place(text string) string {
	for re, name := range map[*regexp.Regexp]string{first: "program:1:", firstIn: "Line 1:"} {
		text = re.ReplaceAllStringFunc(text, func(m string) string {
			column, err := strconv.Atoi(m[len(name):])
			if err != nil {
				return m
			}
			return name + strconv.Itoa(max(1, column-len(opening)))
		})
	}
	return text
}
