// Package standard lists the tools that a server has.
package standard

import (
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/custom"
	"github.com/berth-run/berth/tool/function"
	"github.com/berth-run/berth/tool/localshell"
	"github.com/berth-run/berth/tool/patch"
	"github.com/berth-run/berth/tool/search"
	"github.com/berth-run/berth/tool/shell"
)

// Options are what the tools need of the server.
type Options struct {
	Containers shell.Containers
	Shell      shell.Limits
}

// Kinds returns the tools. To add one, add its line.
func Kinds(opts Options) []tool.Kind {
	return []tool.Kind{
		function.Kind(),
		custom.Kind(),
		search.Namespace(),
		search.Kind(),
		shell.Kind(opts.Containers, opts.Shell),
		localshell.Kind(),
		patch.Kind(),
	}
}
