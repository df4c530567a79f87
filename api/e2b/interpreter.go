package e2b

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/deadline"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/guest/jupyter"
)

// The code interpreter is a service of E2B's templates. Here this server answers its port for every
// sandbox, with the Jupyter kernels of the container.

// interpreterPort is the port at which clients expect the code interpreter.
const interpreterPort = 49999

// executePath is the path of requests that run code.
const executePath = "/execute"

// Limits of the code interpreter.
const (
	maxContexts  = 32      // of a sandbox
	maxExecution = 2 << 20 // bytes of a request
	maxCode      = 1 << 20 // bytes of code
)

// contextStart bounds the start of a context's kernel.
const contextStart = 2 * time.Minute

// A shownContext is a context as clients see it.
type shownContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Dir      string `json:"cwd"`
}

func show(c *deadline.Context) shownContext { return shownContext{c.ID, c.Language, c.Dir} }

// instance returns the name of a context's kernel for the guest.
func instance(c *deadline.Context) string {
	dir := c.Dir
	if dir == homeDir {
		dir = "" // the guest knows the home of its user
	}
	return jupyter.Instance(kernelOf(c.Language), c.ID, dir)
}

// homeDir is the directory in which contexts start by default.
const homeDir = "/home/user"

// languages maps the names of languages to those that contexts show.
var languages = map[string]string{"": "python", "py": "python", "js": "javascript", "ts": "typescript"}

// kernels maps languages to kernels that have another name.
var kernels = map[string]string{"python": "python3", "r": "ir", "typescript": "javascript"}

var kernelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func languageOf(name string) string {
	name = strings.ToLower(name)
	if l, ok := languages[name]; ok {
		return l
	}
	return name
}

func kernelOf(language string) string {
	if k, ok := kernels[language]; ok {
		return k
	}
	return language
}

// interpreters serve the code interpreters of sandboxes.
type interpreters struct {
	containers *container.Service
	deadlines  *deadline.Service
	tokens     *tokens
	executions executions
}

// checkLanguage refuses a language for which the container has no kernel.
func (h *interpreters) checkLanguage(p berth.ProjectID, id berth.ContainerID, language string) error {
	if !kernelName.MatchString(language) {
		return berth.Invalid("language", "Invalid language.")
	}
	contents := h.containers.Access().Contents(p, id)
	if contents == nil || slices.Contains(contents.Kernels, kernelOf(language)) {
		return nil
	}
	// E2B's SDK for JavaScript shows the message of this status only.
	return berth.Errorf(berth.CodeNotFound, "The template of this sandbox has no kernel for '%s'. It has: %s.", language,
		strings.Join(contents.Kernels, ", "))
}

// admit returns the key of the holder of a token of the sandbox, without which a request to the code
// interpreter may only ask for its health: each context is a process, and its id names what it keeps. E2B's SDKs send
// the access token with code, but only the traffic token with requests for contexts. Therefore every sandbox has a
// traffic token.
func (h *interpreters) admit(r *http.Request, to target) (berth.KeyID, error) {
	if isHealthCheck(r) {
		return "", nil
	}
	key, ok, err := h.tokens.bearer(r, to.Project, to.id)
	if err == nil && !ok && r.URL.Path != executePath {
		key, ok, err = h.tokens.visitor(r, to.Project, to.id)
	}
	switch {
	case err != nil || ok:
		return key, err
	case r.URL.Path == executePath:
		return "", unauthorized("The access token is missing or wrong.")
	}
	return "", unauthorized("The code interpreter needs a token of the sandbox, in the header " + tokenHeader + " or " +
		trafficHeader +
		". Recent versions of E2B's SDKs send it.")
}

// isHealthCheck reports whether a request only asks for the health of the code interpreter.
func isHealthCheck(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == "/health"
}

// interpreterTraits returns the limits of a request to the code interpreter.
func interpreterTraits(r *http.Request) exchange.Traits {
	if r.Method != http.MethodPost {
		return exchange.ThroughContainer
	}
	return exchange.StoresNothing | exchange.StoresLittle
}

// serve serves a request to the code interpreter of a sandbox.
func (h *interpreters) serve(x *exchange.Exchange, r *http.Request, to target) error {
	route := r.Method + " " + r.URL.Path
	if _, err := h.deadlines.Container(r.Context(), to.Project, to.id); err != nil {
		if berth.ErrorCode(err) == berth.CodeNotFound {
			return gone(nameOf(to.id))
		}
		return err
	}
	in := interpreter{h, to.Project, to.id, h.containers.Access().Shell(to.caller(x), to.id)}
	name, restart := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/contexts/"), "/restart")
	switch {
	case route == "GET /health":
		_, err := x.Write([]byte("OK"))
		return err
	case route == "POST "+executePath:
		h.containers.Access().Attached(to.caller(x), to.id)
		return in.execute(x, r)
	case route == "GET /contexts":
		return in.list(x, r)
	case route == "POST /contexts":
		return in.create(x, r)
	case !strings.HasPrefix(r.URL.Path, "/contexts/") || strings.Contains(name, "/"):
	case r.Method == http.MethodDelete && !restart:
		return in.remove(x, r, name)
	case r.Method == http.MethodPost && restart:
		return in.restart(x, r, name)
	}
	return &refusal{http.StatusNotFound, failure{http.StatusNotFound, "The code interpreter does not serve " + route +
		"."}}
}

// An interpreter is the code interpreter of one sandbox, for one request.
type interpreter struct {
	all     *interpreters
	project berth.ProjectID
	id      berth.ContainerID
	shell   guest.Execer
}

// contexts returns the contexts of the sandbox.
func (in interpreter) contexts(ctx context.Context) ([]deadline.Context, error) {
	rec, _, err := in.all.deadlines.Read(ctx, in.project, in.id)
	if err != nil {
		return nil, err
	}
	return rec.Contexts, nil
}

func noContext(id string) error {
	return berth.Errorf(berth.CodeNotFound, "Context '%s' not found.", id)
}

// find returns a context by its id.
func (in interpreter) find(ctx context.Context, id string) (*deadline.Context, error) {
	all, err := in.contexts(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(all, func(c deadline.Context) bool { return c.ID == id }); i >= 0 {
		return &all[i], nil
	}
	return nil, noContext(id)
}

// byLanguage returns the default context of a language, which it creates if there is none.
func (in interpreter) byLanguage(ctx context.Context, language string) (found *deadline.Context, err error) {
	language = languageOf(language)
	all, err := in.contexts(ctx)
	if err != nil {
		return nil, err
	}
	isDefault := func(c deadline.Context) bool { return c.Default && c.Language == language }
	if i := slices.IndexFunc(all, isDefault); i >= 0 {
		return &all[i], nil
	}
	if err := in.all.checkLanguage(in.project, in.id, language); err != nil {
		return nil, err
	}
	return in.add(ctx, deadline.Context{Language: language, Dir: homeDir, Default: true})
}

// add saves a new context with an id, or returns the default one that another request has added.
func (in interpreter) add(ctx context.Context, c deadline.Context) (*deadline.Context, error) {
	c.ID = strings.TrimPrefix(berth.NewID("ctx_"), "ctx_")
	_, err := in.all.deadlines.Update(ctx, in.project, in.id, func(rec *deadline.Record) error {
		if i := slices.IndexFunc(rec.Contexts, func(o deadline.Context) bool {
			return c.Default && o.Default && o.Language == c.Language
		}); i >= 0 {
			c = rec.Contexts[i]
			return nil
		}
		if len(rec.Contexts) >= maxContexts && !(c.Default && slices.Contains(defaultLanguages, c.Language)) {
			return berth.Invalid("", "This sandbox has %d contexts; remove some.", maxContexts)
		}
		rec.Contexts = append(rec.Contexts, c)
		return nil
	})
	return &c, err
}

// drop deletes the record of a context.
func (in interpreter) drop(ctx context.Context, id string) error {
	_, err := in.all.deadlines.Update(ctx, in.project, in.id, func(rec *deadline.Record) error {
		rec.Contexts = slices.DeleteFunc(rec.Contexts, func(c deadline.Context) bool { return c.ID == id })
		return nil
	})
	return err
}

// defaultLanguages are the languages that have a default context in each new sandbox, if the template has their
// kernels. The kernels start with the first code.
var defaultLanguages = []string{"python", "javascript"}

func (in interpreter) list(x *exchange.Exchange, r *http.Request) error {
	contents := in.all.containers.Access().Contents(in.project, in.id)
	for _, language := range defaultLanguages {
		if contents == nil || !slices.Contains(contents.Kernels, kernelOf(language)) {
			continue
		}
		if _, err := in.byLanguage(r.Context(), language); err != nil {
			return err
		}
	}
	all, err := in.contexts(r.Context())
	if err != nil {
		return err
	}
	// The default contexts are older than all others, also if their records are not.
	slices.SortStableFunc(all, func(a, b deadline.Context) int {
		return cmp.Compare(defaultRank(a), defaultRank(b))
	})
	shown := make([]shownContext, len(all))
	for i := range all {
		shown[i] = show(&all[i])
	}
	return x.JSON(http.StatusOK, shown)
}

// defaultRank returns the place of a context in a list: of the default contexts that of its language, of all
// others the last one.
func defaultRank(c deadline.Context) int {
	if i := slices.Index(defaultLanguages, c.Language); c.Default && i >= 0 {
		return i
	}
	return len(defaultLanguages)
}

func (in interpreter) create(x *exchange.Exchange, r *http.Request) error {
	var body struct {
		Language string `json:"language"`
		Dir      string `json:"cwd"`
	}
	if err := decodeBody(x, r, &body); err != nil {
		return err
	}
	c := deadline.Context{Language: languageOf(body.Language), Dir: body.Dir}
	if c.Dir == "" {
		c.Dir = homeDir
	}
	if !strings.HasPrefix(c.Dir, "/") || len(c.Dir) > 4096 || strings.ContainsRune(c.Dir, 0) {
		return berth.Invalid("cwd", "Invalid 'cwd'. Expected an absolute path.")
	}
	if err := in.all.checkLanguage(in.project, in.id, c.Language); err != nil {
		return err
	}
	saved, err := in.add(r.Context(), c)
	if err != nil {
		return err
	}
	if err := in.kernel(r.Context(), saved, ""); err != nil {
		return errors.Join(err, in.drop(r.Context(), saved.ID))
	}
	return x.JSON(http.StatusOK, show(saved))
}

// kernel starts the kernel of a context with empty code, or ends it with jupyter.EndCode.
func (in interpreter) kernel(ctx context.Context, c *deadline.Context, code string) error {
	ctx, cancel := context.WithTimeout(ctx, contextStart)
	defer cancel()
	call := guest.ShellCall{CallID: berth.NewID("kernel_"), Commands: []string{code}, Kernel: instance(c),
		Timeout: contextStart}
	var lines jupyter.Decoder
	var said strings.Builder
	for ev, err := range in.shell.Shell(ctx, call) {
		if err != nil {
			return fmt.Errorf("run kernel: %w", err)
		}
		switch ev.Kind {
		case guest.ShellStdout:
			for _, e := range lines.Write(ev.Data, ev.Skipped) {
				said.WriteString(e.Plain())
			}
		case guest.ShellExit:
			if ev.ExitCode != 0 {
				return berth.Invalid("", "The kernel did not start. %s", strings.TrimSpace(said.String()))
			}
		case guest.ShellTimeout:
			return berth.Errorf(berth.CodeUnavailable, "The kernel did not answer.")
		}
	}
	return nil
}

func (in interpreter) remove(x *exchange.Exchange, r *http.Request, name string) error {
	c, err := in.find(r.Context(), name)
	if err != nil {
		return err
	}
	if err := in.end(r.Context(), c); err != nil {
		return err
	}
	if err := in.drop(r.Context(), c.ID); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// restart ends the kernel of a context and starts another one.
func (in interpreter) restart(x *exchange.Exchange, r *http.Request, name string) error {
	c, err := in.find(r.Context(), name)
	if err != nil {
		return err
	}
	if err := in.end(r.Context(), c); err != nil {
		return err
	}
	if err := in.kernel(r.Context(), c, ""); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// end interrupts what runs in a context, and ends its kernel.
func (in interpreter) end(ctx context.Context, c *deadline.Context) error {
	for _, callID := range in.all.executions.of(c.ID) {
		if err := in.shell.Cancel(ctx, callID); err != nil {
			return fmt.Errorf("interrupt code: %w", err)
		}
	}
	return in.kernel(ctx, c, jupyter.EndCode)
}

// decodeBody decodes the JSON of a request, whose fields may be null.
func decodeBody(x *exchange.Exchange, r *http.Request, v any) error {
	raw, err := io.ReadAll(x.Body(r, maxExecution))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return &refusal{http.StatusRequestEntityTooLarge,
			failure{http.StatusRequestEntityTooLarge, fmt.Sprintf("A request may have %d bytes.", maxExecution)}}
	}
	if err != nil {
		return berth.Invalid("", "The body could not be read: %v.", err)
	}
	if len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return berth.Invalid("", "The body is not valid: %v.", err)
	}
	return nil
}
