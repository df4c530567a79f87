// Package archtest checks the project's rules that the compiler does not: the direction of imports,
// which packages may use what, and the length of files.
//
// It parses sources in-process. If it ran the go command instead, the test cache could return an old
// result after a bad import was added.
package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Module is the module path.
const Module = "github.com/berth-run/berth"

// maxLines is the maximum length of a file. It does not apply to generated files.
const maxLines = 520

// Anything allows a package to import all packages of the module.
const Anything = "*"

// Imports lists the packages of the module that each package may import; "" is the root. To add a
// package, add its line.
var Imports = map[string][]string{
	"": {},

	"vectorstore":          {"", "internal/rule", "internal/tokens", "store", "vectorstore/index"},
	"vectorstore/index":    {},
	"vectorstore/document": {"internal/jail", "vectorstore"},
	"store":                {"", "internal/ration"},
	"store/sealed":         {"", "internal/jsonscan", "internal/keyring", "internal/seal", "store"},
	"store/postgres": {"", "internal/backoff", "internal/keyring", "store", "store/sealed", "store/sql",
		"store/transfer"},
	"store/postgres/pgtest": {"internal/freeport"},
	"store/sql":             {"", "store", "store/sealed"},
	"store/sqlite":          {"", "store", "store/sealed", "store/sql", "store/transfer"},
	"store/storetest":       {"", "internal/ration", "store"},
	"store/transfer":        {},
	"store/transient":       {"", "store"},
	"model":                 {"", "internal/tokens"},
	"model/embedding":       {""},
	"model/upstream":        {"", "internal/ration", "internal/sse", "model", "egress/proxy"},
	"model/dialogue":        {""},
	"model/chat":            {"", "internal/jsonscan", "internal/sse", "model", "model/dialogue", "model/upstream"},
	"model/anthropic":       {"", "internal/sse", "model", "model/dialogue", "model/upstream"},
	"model/openai":          {"", "internal/sse", "model", "model/dialogue", "model/upstream"},
	"model/gemini":          {"", "internal/sse", "model", "model/dialogue", "model/upstream"},
	"model/scripted":        {"", "internal/jsonscan", "model"},
	"model/balance":         {"", "model", "model/dialogue", "internal/backoff"},
	"model/modeltest":       {"", "model", "model/dialogue"},
	"cluster":               {"", "cluster/peer", "internal/backoff", "internal/forward", "store"},
	"cluster/peer":          {},
	"blob":                  {"", "audit", "internal/clock", "internal/seal", "store"},
	"blob/blobtest":         {"blob"},
	"blob/remote":           {"", "blob"},
	"blob/transfer":         {"blob"},
	"batch":                 {"", "files", "internal/backoff", "internal/ration", "internal/rule", "store"},
	"files":                 {"", "audit", "blob", "store"},
	"skills":                {"", "audit", "blob", "store"},
	"secrets":               {"", "audit", "store"},
	"sshkeys":               {"", "audit", "store"}, "approvals": {"", "audit", "internal/clock", "store"},
	"schedules":     {"", "audit", "internal/backoff", "internal/clock", "internal/rule", "store"},
	"files/uploads": {"", "audit", "blob", "files", "store"},
	"bundle": {"", "engine", "files", "guest", "layer", "internal/jsonscan", "internal/ration",
		"internal/seal", "journal", "model", "container", "container/snapshot", "skills", "store", "tool"},
	"container/build": {"", "cluster", "container", "container/snapshot", "files", "guest", "internal/clock",
		"internal/rule", "store"},
	"container/deadline": {"", "cluster", "internal/clock", "store"},
	"container/snapshot": {"", "audit", "internal/clock", "blob", "layer", "store"},
	"journal":            {"", "internal/ration", "store"},
	"diskspace":          {"", "store"},
	"people":             {"", "audit", "store"},
	"retention":          {"", "audit", "internal/clock", "internal/rule", "store"},
	"enduser":            {"", "audit", "internal/clock", "internal/rule", "store"},
	"people/oidc":        {"internal/backoff", "people"},
	"project":            {"", "audit", "internal/backoff", "store"},
	"webhook":            {"", "egress", "store", "internal/backoff", "egress/proxy"},
	"download":           {"", "egress"},
	"release":            {},
	"image":              {"layer", "internal/beneath", "internal/jsonscan", "internal/statefile"},
	"layer":              {"internal/beneath"},
	"image/erofs":        {"layer"},
	"image/registry":     {"image"},
	"guest/desktop":      {},
	"guest/listener":     {},
	"guest/sftp":         {},
	"guest/jupyter":      {"internal/jsonscan"},
	"guest":              {"guest/guestpb", "guest/mux", "internal/backoff"},
	"guest/changes":      {"guest/guestpb", "guest/plainfile", "internal/beneath", "internal/clock"},
	"guest/editor":       {"guest/plainfile"},
	"guest/plainfile":    {},
	"guest/server": {"guest/changes", "guest/desktop", "guest/editor", "guest/guestpb", "guest/jupyter",
		"guest/mux", "guest/plainfile", "guest/route", "internal/beneath", "layer"},
	"guest/mux":            {},
	"guest/route":          {},
	"guest/serial":         {},
	"guest/boot":           {},
	"tool":                 {"", "internal/rule"},
	"tool/codeinterpreter": {"", "guest", "guest/jupyter", "internal/rule", "tool"},
	"tool/computer":        {"", "guest", "internal/jsonscan", "internal/rule", "tool"},
	"tool/custom":          {"", "internal/rule", "tool", "tool/custom/grammar"},
	"tool/custom/grammar":  {},
	"tool/function":        {"", "internal/rule", "tool"},
	"tool/imagegeneration": {"", "internal/rule", "tool"},
	"tool/localshell":      {"", "internal/rule", "tool"},
	"tool/mcp":             {"", "egress", "guest", "internal/jsonscan", "internal/ration", "internal/rule", "tool"},
	"tool/patch":           {"", "internal/rule", "tool"},
	"tool/search":          {"", "internal/rule", "tool"},
	"tool/program":         {"", "internal/rule", "tool", "tool/program/javascript"},
	"tool/shell":           {"", "guest", "internal/rule", "tool"},
	"tool/filesearch":      {"", "internal/rule", "tool", "vectorstore"},
	"tool/texteditor":      {"", "guest", "tool"},
	"tool/standard": {"tool", "tool/texteditor", "tool/filesearch", "tool/codeinterpreter", "tool/computer",
		"tool/custom", "tool/function", "tool/imagegeneration", "tool/localshell", "tool/mcp", "tool/patch",
		"tool/program", "tool/search", "tool/shell", "tool/websearch"},
	"egress":       {"egress/allow", "egress/proxy", "egress/sign", "egress/mint"},
	"egress/proxy": {""}, "egress/allow": {}, "egress/sign": {}, "egress/mint": {},
	"audit":         {"", "internal/clock", "internal/statefile"},
	"audit/forward": {"audit", "internal/backoff", "internal/clock", "internal/statefile"},
	"container/volume": {"", "audit", "internal/clock", "blob", "internal/beneath", "internal/statefile",
		"sandbox", "sandbox/host", "store"},
	"sandbox":            {"internal/statefile"},
	"sandbox/host":       {"sandbox"},
	"sandbox/gvisor":     {"image/erofs", "layer", "internal/statefile", "sandbox", "sandbox/host"},
	"sandbox/docker":     {"layer", "sandbox"},
	"sandbox/kubernetes": {"layer", "sandbox"},
	"sandbox/microvm":    {"guest/boot", "guest/serial", "internal/statefile", "sandbox", "sandbox/host"},
	"sandbox/local":      {"internal/statefile", "sandbox"},
	"sandbox/drivertest": {"egress", "guest", "internal/beneath", "layer", "internal/longtest", "internal/testsuite",
		"sandbox"},
	"container": {"", "cluster", "internal/clock", "internal/seal", "internal/span", "audit", "egress", "guest",
		"guest/jupyter", "layer", "internal/nofile", "sandbox", "container/snapshot", "skills", "store",
		"container/volume", "internal/backoff", "egress/proxy", "egress/sign", "egress/mint"},
	"container/command": {"", "guest", "guest/jupyter", "internal/rule"},
	"container/session": {"", "container", "internal/clock", "internal/rule", "store"},
	"container/process": {"", "guest", "internal/clock"}, "container/bash": {"", "guest"},
	"engine": {"", "cluster", "internal/span", "engine/transcript", "journal", "model", "model/embedding", "store",
		"tool", "internal/backoff"},
	"engine/transcript": {"", "internal/seal", "model", "store", "tool"},
	"completions":       {"", "internal/rule", "store"},
	"idempotency":       {"", "store"},
	"prompts":           {"", "internal/rule", "store"}, "responses": {"", "internal/rule", "store"},
	"usage":         {"", "store"},
	"traces":        {"", "internal/rule", "store"},
	"conversations": {"", "engine", "internal/rule", "store"},
	"threads":       {"", "engine", "files", "internal/rule", "journal", "model", "store", "vectorstore"},
	"api": {"", "api/assistants", "api/chat", "api/e2b", "api/envd", "api/exchange", "api/mcp", "api/messages",
		"api/openterminal", "api/preview", "api/request", "api/scim", "api/signin", "api/socket", "api/swerex",
		"approvals", "audit", "batch", "bundle", "completions", "container", "container/bash", "container/command",
		"container/process", "container/session", "container/snapshot", "container/volume", "conversations",
		"diskspace", "docs", "enduser", "engine", "files", "files/uploads", "guest", "internal/conns",
		"internal/jsonscan", "internal/nofile", "internal/rule", "journal", "model", "model/embedding", "project",
		"prompts", "responses", "retention", "schedules", "site", "skills", "ssh", "sshkeys", "threads", "traces",
		"usage", "vectorstore", "webhook"},
	"ssh":         {"", "audit", "guest", "internal/clock", "internal/nofile", "sshkeys"},
	"site":        {"", "console/assets", "site/manual"},
	"site/manual": {}, "site/publish": {"site"},
	"docs": {},
	"api/mcp": {"", "api/exchange", "approvals", "cluster", "container", "container/command", "container/session",
		"guest", "internal/rule"},
	"api/openterminal": {"", "api/exchange", "api/preview", "cluster", "container", "container/process",
		"container/session", "guest", "internal/conns"},
	"api/messages": {"", "api/exchange", "api/request", "batch", "engine", "files", "internal/rule", "journal", "model",
		"skills", "tool"},
	"api/envd":   {"", "api/exchange", "api/preview", "guest", "internal/forward"},
	"api/swerex": {"", "api/exchange", "container", "container/bash", "guest"},
	"api/e2b": {"", "api/envd", "api/exchange", "api/preview", "cluster", "container", "container/build",
		"container/deadline", "container/volume", "egress", "files", "guest", "guest/jupyter", "internal/conns",
		"internal/rule", "secrets", "webhook"},
	"api/exchange": {"", "cluster", "internal/span", "diskspace", "internal/conns", "internal/jsonscan",
		"idempotency", "internal/ration", "internal/rule", "internal/sse", "journal", "project"},
	"api/scim": {"", "api/exchange", "people"}, "api/signin": {"", "api/exchange", "people"},
	"api/request": {"", "internal/rule", "tool"},
	"api/chat": {"", "api/exchange", "api/request", "completions", "enduser", "engine", "internal/rule", "journal",
		"tool", "tool/shell"},
	"api/socket": {"", "api/exchange", "api/request", "engine", "internal/jsonscan", "internal/ration",
		"internal/rule", "journal"},
	"api/assistants": {"", "api/exchange", "internal/rule", "threads", "vectorstore"},
	"api/preview": {"", "api/exchange", "container", "egress", "internal/conns", "internal/forward",
		"internal/rule"},
	"console": {"", "schedules", "console/assets", "console/markdown", "guest", "internal/connect", "internal/jsonscan",
		"internal/sse", "people"},
	"console/assets":       {},
	"console/markdown":     {"internal/jail"},
	"internal/span":        {},
	"internal/sse":         {},
	"internal/jsonscan":    {},
	"internal/beneath":     {},
	"internal/backoff":     {},
	"internal/ration":      {"", "internal/jsonscan"},
	"internal/rule":        {""},
	"internal/archtest":    {},
	"internal/connect":     {},
	"internal/disktest":    {},
	"internal/forward":     {},
	"internal/freeport":    {},
	"internal/dockertest":  {},
	"internal/kubetest":    {},
	"internal/s3test":      {"internal/freeport"},
	"internal/dextest":     {},
	"internal/squidtest":   {"internal/freeport"},
	"internal/clock":       {},
	"internal/conns":       {"internal/nofile"},
	"internal/nofile":      {},
	"tracing":              {"internal/backoff", "internal/span"},
	"metrics":              {"", "diskspace", "internal/conns", "container", "project", "store"},
	"internal/seal":        {},
	"internal/tokens":      {},
	"internal/keyring":     {},
	"internal/statefile":   {},
	"internal/longtest":    {},
	"internal/testsuite":   {},
	"internal/jail":        {},
	"api/contract":         {"internal/sse"},
	"api/reference":        {"", "api/contract", "internal/rule"},
	"api/contract/distill": {},
	"server":               {Anything},
	"server/config":        {"", "egress/allow", "internal/nofile"},
	"server/doctor": {"", "blob/remote", "diskspace", "guest", "image", "internal/nofile", "model", "sandbox",
		"sandbox/docker", "sandbox/gvisor", "sandbox/host", "sandbox/kubernetes", "sandbox/microvm",
		"server/config", "server/driver", "server/outbound", "server/routing", "server/state",
		"server/templates", "store/postgres"},
	"server/driver": {"blob/remote", "sandbox", "sandbox/docker", "sandbox/gvisor", "sandbox/kubernetes",
		"sandbox/local", "sandbox/microvm", "server/config", "server/embedded", "server/state"},
	"server/routing": {"", "model", "model/anthropic", "model/balance", "model/chat", "model/gemini",
		"model/openai", "model/scripted", "model/upstream", "egress/proxy", "server/config",
		"server/outbound"},
	"server/outbound": {"", "egress/proxy", "server/config"},
	"server/templates": {"", "container", "container/build", "diskspace", "egress", "egress/proxy", "image",
		"image/registry", "internal/rule", "sandbox", "server/config", "server/state", "internal/statefile"},
	"server/state": {"", "audit", "blob", "blob/remote", "blob/transfer", "container/snapshot", "container/volume",
		"files/uploads", "image", "internal/clock", "internal/keyring", "internal/seal", "internal/statefile", "people",
		"project", "retention", "server/config",
		"skills", "store", "store/postgres", "store/sealed", "store/sqlite", "store/transfer"},
	"server/embedded":      {},
	"server/embedded/pack": {},
	"compose":              {""},
	"cmd/berth": {"", "audit", "bundle", "compose", "console/markdown", "container", "guest", "image", "image/registry",
		"internal/connect", "internal/jsonscan", "internal/sse", "people", "project", "release", "server",
		"server/config", "schedules", "server/doctor", "server/driver", "server/state", "sshkeys", "store",
		"tool/program/javascript", "vectorstore/document", "webhook"},
	"cmd/berth-guest": {"guest/boot", "guest/editor", "guest/listener", "guest/route", "guest/serial", "guest/server",
		"guest/sftp"},
	"demo/gen":              {},
	"demo/record":           {},
	"demo/template":         {"image"},
	"examples/coding-agent": {},
	"e2e":                   {"", "internal/longtest", "internal/testsuite"},
	"packaging/oci":         {},
	"packaging/notices":     {},
	"packaging/sbom":        {},
	"packaging/vex":         {},
	"e2e/bench": {"", "guest", "image", "internal/kubetest", "sandbox", "sandbox/gvisor", "server/state",
		"store"},

	"tool/program/javascript": {"internal/jail"},
	"tool/websearch":          {"", "download", "internal/rule", "tool", "tool/websearch/backend"},
	"tool/websearch/backend":  {"", "internal/jsonscan"},
}

// Bans lists packages that only some packages may import, so that the engine stays independent of
// HTTP, only what opens or examines drivers depends on them, and the API's doors do not depend on each other.
var Bans = map[string][]string{
	Module + "/server":           {"cmd/berth", "e2e/bench"},
	Module + "/api":              {"server"}, // a door imports api/exchange, never api
	Module + "/api/assistants":   {"api"},
	Module + "/api/chat":         {"api"},
	Module + "/api/mcp":          {"api"},
	Module + "/api/messages":     {"api"},
	Module + "/api/openterminal": {"api"},
	Module + "/api/preview":      {"api", "api/e2b", "api/envd", "api/openterminal"},
	Module + "/api/scim":         {"api", "server"}, Module + "/api/signin": {"api", "server"},
	Module + "/api/swerex": {"api"}, Module + "/api/socket": {"api"},
	Module + "/ssh":             {"api", "server"},
	Module + "/sandbox/gvisor":  {"server/doctor", "server/driver", "e2e/bench"},
	Module + "/sandbox/microvm": {"server/doctor", "server/driver"},
	Module + "/sandbox/docker":  {"server/doctor", "server/driver"},
	Module + "/sandbox/local":   {"server/driver"},

	Module + "/sandbox/kubernetes": {"server/doctor", "server/driver"},

	// Clients of vendors are for tests: they make the program larger and its first build longer.
	"google.golang.org/genai":                {},
	"github.com/anthropics/anthropic-sdk-go": {},
	"github.com/openai/openai-go/v3":         {"examples/coding-agent"},

	"net/http": {"console", "api", "site", "ssh", "api/mcp", "api/openterminal", "api/messages", "api/e2b",
		"api/swerex", "tool/texteditor", "api/envd", "cluster", "api/scim", "api/signin", "cluster/peer",
		"internal/forward", "api/assistants", "api/socket", "container/command", "api/chat", "api/exchange",
		"api/preview", "webhook", "audit/forward", "egress", "egress/sign", "egress/mint", "download", "people/oidc",
		"egress/proxy", "internal/squidtest", "tool/codeinterpreter", "tool/imagegeneration", "tool/mcp",
		"tool/websearch/backend", "internal/conns", "api/contract", "api/reference", "metrics", "guest",
		"guest/server", "model/upstream", "model/chat", "model/openai", "model/gemini", "model/anthropic",
		"model/modeltest", "e2e/bench", "release", "tracing", "server", "cmd/berth", "e2e", "sandbox/drivertest",
		"sandbox/kubernetes", "image/registry", "internal/kubetest", "blob/remote", "internal/s3test",
		"internal/dextest"},
	"database/sql": {"store/sqlite", "vectorstore/index"}, // the latter in memory only
	"os/exec": {"demo/record", "internal/jail", "tool/program/javascript", "vectorstore/document",
		"container/volume", "sandbox/host", "sandbox/gvisor", "sandbox/microvm", "sandbox/local", "sandbox/drivertest",
		"guest/boot", "guest/server", "image", "internal/disktest", "internal/dockertest", "internal/kubetest",
		"internal/s3test", "internal/dextest", "internal/squidtest", "store/postgres/pgtest", "store/storetest",
		"e2e/bench", "cmd/berth", "server/doctor", "e2e"},
}

// checkDoors returns a message for each door that may import the store by the table. A door is HTTP and JSON: what it
// stores belongs to a package below it, which other doors can use.
func checkDoors(imports map[string][]string) (broken []string) {
	for pkg, allowed := range imports {
		door := pkg == "api" || pkg == "ssh" || strings.HasPrefix(pkg, "api/")
		if door && slices.ContainsFunc(allowed, func(p string) bool {
			return p == "store" || strings.HasPrefix(p, "store/")
		}) {
			broken = append(broken, fmt.Sprintf("%s is a door and must not import the store", pkg))
		}
	}
	return broken
}

// Clocked lists the packages that have a clock (internal/clock). They read the time and wait by it alone, because with
// two clocks their tests would depend on the speed of the machine.
var Clocked = []string{"approvals", "audit", "container", "container/build", "container/deadline", "container/process",
	"container/session", "container/snapshot", "container/volume", "enduser", "retention", "schedules"}

// timed lists what a package with a clock must not use: these read the time of the system, or wait by it.
var timed = map[string][]string{
	"time":    {"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"},
	"context": {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"},
	"backoff": {"Sleep"},
}

// A file holds the properties of a source file that the rules check.
type file struct {
	pkg, name string
	imports   []string
	doc       bool
	lines     int
	generated bool
	kinds     []string // literals of type store.Kind
	times     []string // uses of what timed lists
}

// Check parses the sources below root and returns a message for each violation.
func Check(root string, imports, bans map[string][]string, clocked []string) ([]string, error) {
	files, err := parse(root)
	if err != nil {
		return nil, err
	}
	broken, err := wideLines(root)
	if err != nil {
		return nil, err
	}
	docs := map[string][]string{}
	for _, f := range files {
		allowed, known := imports[f.pkg]
		if !known && !strings.HasPrefix(f.pkg, "guest/guestpb") {
			broken = append(broken,
				fmt.Sprintf(
					"package %q is not in the table Imports: add it to internal/archtest with its allowed imports",
					f.pkg))
			continue
		}
		broken = append(broken, checkImports(f, allowed, bans)...)
		if f.lines > maxLines && !f.generated {
			broken = append(broken, fmt.Sprintf("%s has %d lines; split it by topic", path.Join(f.pkg, f.name),
				f.lines))
		}
		for _, kind := range f.kinds {
			broken = append(broken,
				fmt.Sprintf("%s declares the store.Kind %s; add it to the table in store/kind.go instead",
					path.Join(f.pkg, f.name), kind))
		}
		if slices.Contains(clocked, f.pkg) {
			for _, use := range f.times {
				broken = append(broken, fmt.Sprintf("%s uses %s; use the package's clock", path.Join(f.pkg, f.name),
					use))
			}
		}
		if f.doc {
			docs[f.pkg] = append(docs[f.pkg], f.name)
		} else if docs[f.pkg] == nil {
			docs[f.pkg] = []string{}
		}
	}
	for pkg, in := range docs {
		if len(in) != 1 && !strings.HasPrefix(pkg, "guest/guestpb") {
			broken = append(broken, fmt.Sprintf("package %q has package comments in %d files %v, want exactly one", pkg,
				len(in), in))
		}
	}
	slices.Sort(broken)
	return slices.Compact(broken), nil
}

func checkImports(f file, allowed []string, bans map[string][]string) []string {
	var broken []string
	for _, imp := range f.imports {
		if only, banned := bans[imp]; banned && !slices.Contains(only, f.pkg) && !f.generated {
			broken = append(broken, fmt.Sprintf("%s imports %s, which only %v may import", path.Join(f.pkg, f.name),
				imp, only))
		}
		own, ok := strings.CutPrefix(imp, Module)
		if !ok || f.generated {
			continue
		}
		own = strings.TrimPrefix(own, "/")
		fits := func(a string) bool {
			return a == Anything || a == own || a != "" && a == "guest/guestpb" && strings.HasPrefix(own, a+"/")
		}
		if !slices.ContainsFunc(allowed, fits) {
			broken = append(broken, fmt.Sprintf("%s imports %q, which is not in its list of allowed imports",
				path.Join(f.pkg, f.name), own))
		}
	}
	if f.pkg == "" {
		for _, imp := range f.imports {
			if strings.Contains(imp, ".") {
				broken = append(broken, fmt.Sprintf("%s imports %s; the nouns import the standard library only", f.name,
					imp))
			}
		}
	}
	return broken
}

// parse parses all sources except tests, testdata and nested modules.
func parse(root string) ([]file, error) {
	var files []file
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		if d.IsDir() {
			return skipDir(rel)
		}
		if !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		ast, err := parser.ParseFile(set, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		files = append(files, look(set, ast, filepath.ToSlash(rel)))
		return nil
	})
	return files, err
}

// skipDir returns fs.SkipDir for hidden directories, testdata and nested modules.
func skipDir(rel string) error {
	name := filepath.Base(rel)
	ownModule := rel == "tools" || rel == filepath.Join("cmd", "berth-runsc") || rel == filepath.Join("e2e",
		"goclients") || rel == filepath.Join("e2e", "dex")
	if rel != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || ownModule) {
		return fs.SkipDir
	}
	return nil
}

func look(set *token.FileSet, a *ast.File, rel string) file {
	f := file{pkg: path.Dir(rel), name: path.Base(rel), doc: a.Doc != nil && strings.TrimSpace(a.Doc.Text()) != "",
		lines: set.File(a.FileStart).LineCount(), generated: ast.IsGenerated(a)}
	if f.pkg == "." {
		f.pkg = ""
	}
	for _, imp := range a.Imports {
		f.imports = append(f.imports, strings.Trim(imp.Path.Value, `"`))
	}
	f.kinds, f.times = kinds(a), times(a)
	return f
}

// times returns the uses of what timed lists.
func times(a *ast.File) (found []string) {
	ast.Inspect(a, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(timed[x.Name], sel.Sel.Name) {
				found = append(found, x.Name+"."+sel.Sel.Name)
			}
		}
		return true
	})
	return found
}

// kinds returns the string literals that a file declares or converts as a store.Kind.
func kinds(a *ast.File) (found []string) {
	literals := func(typ ast.Expr, values []ast.Expr) {
		sel, ok := typ.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != "Kind" {
			return
		}
		if x, ok := sel.X.(*ast.Ident); !ok || x.Name != "store" {
			return
		}
		for _, v := range values {
			if lit, ok := v.(*ast.BasicLit); ok {
				found = append(found, lit.Value)
			}
		}
	}
	ast.Inspect(a, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			literals(n.Type, n.Values)
		case *ast.CallExpr:
			literals(n.Fun, n.Args)
		}
		return true
	})
	return found
}
