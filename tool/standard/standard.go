// Package standard lists the tools of a server.
package standard

import (
	"slices"

	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/codeinterpreter"
	"github.com/berth-run/berth/tool/computer"
	"github.com/berth-run/berth/tool/custom"
	"github.com/berth-run/berth/tool/filesearch"
	"github.com/berth-run/berth/tool/function"
	"github.com/berth-run/berth/tool/imagegeneration"
	"github.com/berth-run/berth/tool/localshell"
	"github.com/berth-run/berth/tool/mcp"
	"github.com/berth-run/berth/tool/patch"
	"github.com/berth-run/berth/tool/program"
	"github.com/berth-run/berth/tool/search"
	"github.com/berth-run/berth/tool/shell"
	"github.com/berth-run/berth/tool/texteditor"
	"github.com/berth-run/berth/tool/websearch"
)

// Options are the parts of the server that the tools use.
type Options struct {
	Containers   shell.Containers
	Kernels      codeinterpreter.Containers
	Desktops     computer.Containers
	Editors      texteditor.Containers
	Shell        shell.Limits
	Environment  shell.DefaultEnvironment
	Code         codeinterpreter.Limits
	Computer     computer.Limits
	VectorStores filesearch.Searcher
	MCP          mcp.Options
	WebSearch    websearch.Options
	Images       imagegeneration.Options
}

// Kinds returns the kinds of all tools. A new tool needs one line here.
func Kinds(opts Options) []tool.Kind {
	return append([]tool.Kind{
		function.Kind(),
		custom.Kind(),
		search.Namespace(),
		search.Kind(),
		shell.Kind(opts.Containers, opts.Shell, opts.Environment),
		filesearch.Kind(opts.VectorStores),
		codeinterpreter.Kind(opts.Kernels, opts.Code),
		texteditor.Kind(opts.Editors),
		localshell.Kind(),
		mcp.Kind(opts.MCP),
		patch.Kind(),
		program.Kind(),
		imagegeneration.Kind(opts.Images),
	}, slices.Concat(computer.Kinds(opts.Desktops, opts.Computer), websearch.Kinds(opts.WebSearch))...)
}
