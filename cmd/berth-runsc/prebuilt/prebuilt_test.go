package prebuilt

import (
	"runtime"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	gvisor "gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/boot/filter/config"

	"github.com/berth-run/berth/cmd/berth-runsc/prebuilt/compile"
)

// With any values of its variables, the filter is the one that the pinned gVisor computes.
func TestFilter(t *testing.T) {
	if filter == nil {
		t.Skipf("none for %s", runtime.GOARCH)
	}
	options, err := compile.Options()
	if err != nil {
		t.Fatal(err)
	}
	Use()
	for _, options.ControllerFD = range []uint32{0, 3, 17, 1 << 20} {
		allowed, denied := config.Rules(options)
		program := seccomp.Program{RuleSets: []seccomp.RuleSet{{Rules: denied},
			{Rules: allowed, Action: seccomp.Allow}},
			Options: config.SeccompOptions(options)}
		want, _, err := program.Build()
		if err != nil {
			t.Fatal(err)
		}
		found, ok := gvisor.GetPrecompiled(options.ConfigKey())
		if !ok {
			t.Fatal("gVisor does not find the filter: run go generate")
		}
		got, err := found.RenderInstructions(options.Vars())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("descriptor %d: differs from the filter that gVisor computes: run go generate",
				options.ControllerFD)
		}
	}
}

// gVisor computes the filter for other options.
func TestOtherOptions(t *testing.T) {
	options, err := compile.Options()
	if err != nil {
		t.Fatal(err)
	}
	options.HostFilesystem = true
	Use()
	if _, ok := gvisor.GetPrecompiled(options.ConfigKey()); ok {
		t.Error("the filter would be used for direct access to files")
	}
}

func TestNoPoints(t *testing.T) {
	Use()
	seccheck.Initialize()
	if n := len(seccheck.Points); n > 0 {
		t.Errorf("%d trace points are described", n)
	}
}
