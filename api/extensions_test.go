package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/reference"
)

const fieldsStart = "<!-- written by go test ./api -run TestExtensionsPage -update -->\n"

// extensions are the objects with the field "berth".
var extensions = []reference.Extension{
	{Object: "the request of `POST /v1/responses`", Page: "agents.md", Value: berth.RequestBerth{}},
	{Object: "the request of `POST /v1/containers`", Page: "session.md", Value: berth.ContainerExtension{}},
	{Object: "the environment `container_auto` of a tool", Page: "snapshots.md", Value: berth.ContainerSource{}},
	{Object: "the tool `computer` or `computer_use_preview`", Page: "computer.md", Value: berth.ComputerToolBerth{}},
	{Object: "the tool `mcp`", Page: "mcp.md", Value: berth.MCPToolBerth{}},
	{Object: "a response", Page: "observe.md", Value: berth.ResponseBerth{}},
	{Object: "a container", Page: "session.md", Value: berth.ContainerBerth{}},
	{Object: "a model of `GET /v1/models`", Page: "models.md", Value: berth.ModelBerth{}},
	{Object: "a batch", Page: "batches.md", Value: berth.BatchBerth{}},
	{Object: "the item of a call", Page: "agents.md", Value: berth.CallBerth{}},
	{Object: "the item `shell_call_output`", Page: "exec.md", Value: berth.ShellBerth{}},
	{Object: "the item `code_interpreter_call`", Page: "code-interpreter.md", Value: berth.CodeInterpreterBerth{}},
	{Object: "the item `computer_call` of a container", Page: "computer.md", Value: berth.ComputerBerth{}},
	{Object: "the item `computer_call_output`", Page: "computer.md", Value: berth.ComputerOutputBerth{}},
	{Object: "the item `file_search_call`", Page: "file-search.md", Value: berth.FileSearchBerth{}},
	{Object: "the item `web_search_call`", Page: "web-search.md", Value: berth.WebSearchBerth{}},
	{Object: "the item `image_generation_call`", Page: "image-generation.md", Value: berth.ImageGenerationBerth{}},
	{Object: "the item `mcp_list_tools`", Page: "mcp.md", Value: berth.MCPListBerth{}},
	{Object: "the `caller` of a call of a program", Page: "programmatic-tool-calling.md", Value: berth.CallerBerth{}},
}

// docs/fields.md lists the fields of "berth".
func TestExtensionsPage(t *testing.T) {
	t.Parallel()
	const name = "../docs/fields.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(page), fieldsStart)
	if !found {
		t.Fatalf("%s has no line %q", name, fieldsStart)
	}
	kinds := map[reflect.Type]string{
		reflect.TypeFor[berth.Amount]():               "number",
		reflect.TypeFor[berth.ApprovalPolicy]():       "`always`, `never`, or an object with patterns",
		reflect.TypeFor[berth.InputTokenDetails]():    "object, as in OpenAI's `usage`",
		reflect.TypeFor[berth.OutputTokenDetails]():   "object, as in OpenAI's `usage`",
		reflect.TypeFor[berth.ShellToolEnvironment](): "object, as the [shell's](session.md) `environment`",
	}
	generated(t, name, []byte(head+fieldsStart+reference.ExtensionsPage("..", "github.com/berth-run/berth", kinds,
		extensions)))
}

// Each type of a field "berth" of package berth is in the table.
func TestExtensionsAreListed(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	for _, e := range extensions {
		listed[reflect.TypeOf(e.Value).Name()] = true
	}
	files, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(node ast.Node) bool {
			field, ok := node.(*ast.Field)
			if !ok || field.Tag == nil || !strings.Contains(field.Tag.Value, `json:"berth`) {
				return true
			}
			of := field.Type
			if star, ok := of.(*ast.StarExpr); ok {
				of = star.X
			}
			n++
			if id, ok := of.(*ast.Ident); !ok || !listed[id.Name] {
				t.Errorf("%s: a field \"berth\" of type %v is not in the table of extensions_test.go", file, of)
			}
			return true
		})
	}
	if n < 15 {
		t.Errorf("found only %d fields", n)
	}
}
