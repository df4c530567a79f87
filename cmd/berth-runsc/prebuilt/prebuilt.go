// Package prebuilt has what the sentry of each sandbox would otherwise compute at its start, with the
// same result every time.
//
//   - The instructions of its seccomp filter, a sixth of the processor time of its start. gVisor's own builds
//     precompile them as well, but not for the options that Berth sets, and its Go module has none.
//     For other options than Filter's, gVisor computes them, as it does without this package.
//   - The descriptions of trace points (package seccheck). Berth never creates trace sessions.
//
// The package names unexported variables of the pinned version of gVisor. Its test fails if the filter
// differs from what that version computes; `go generate` makes it anew.
package prebuilt

import (
	"sync"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	_ "gvisor.dev/gvisor/pkg/sentry/seccheck"
	_ "gvisor.dev/gvisor/runsc/boot/filter"
)

//go:generate go run ./generate

//go:linkname programs gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var programs map[string]precompiledseccomp.Program

//go:linkname registerPrograms gvisor.dev/gvisor/runsc/boot/filter.registerPrecompiledProgramsOnce
var registerPrograms sync.Once

//go:linkname describePoints gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var describePoints sync.Once

// Use makes gVisor use the package's results in the process of a sandbox. It must be called before the
// sandbox is created.
func Use() {
	registerPrograms.Do(func() {
		programs = map[string]precompiledseccomp.Program{}
		if filter != nil {
			programs[filter.Name] = *filter
		}
	})
	describePoints.Do(func() {})
}
