// Package compile computes the seccomp filter of package prebuilt.
package compile

import (
	_ "unsafe" // for go:linkname

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	_ "gvisor.dev/gvisor/pkg/sentry/platform/systrap" // registers itself
	"gvisor.dev/gvisor/runsc/boot/filter/config"
)

// Options are the options that Berth sets: systrap, a network stack of the sentry's own, and files
// through the gofer.
func Options() (config.Options, error) {
	systrap, err := platform.Lookup("systrap")
	if err != nil {
		return config.Options{}, err
	}
	return config.Options{Platform: systrap.PrecompiledSeccompInfo()[0]}, nil
}

// Filter computes the filter for Options.
func Filter() (precompiledseccomp.Program, error) {
	options, err := Options()
	if err != nil {
		return precompiledseccomp.Program{}, err
	}
	var variables []string
	for name := range options.Vars() {
		variables = append(variables, name)
	}
	filter, err := precompiledseccomp.Precompile(options.ConfigKey(), variables,
		func(values precompiledseccomp.Values) *seccomp.Program {
			allowed, denied := rules(options, values)
			allowed.Remove(unix.SYS_RT_TGSIGQUEUEINFO)
			allowed.Set(unix.SYS_RT_TGSIGQUEUEINFO, killOwnThread(values))
			return &seccomp.Program{
				RuleSets: []seccomp.RuleSet{{Rules: denied.Copy()}, {Rules: allowed.Copy(), Action: seccomp.Allow}},
				Options:  config.SeccompOptions(options),
			}
		})
	for _, offsets := range filter.VarOffsets {
		for _, at := range offsets {
			filter.Bytecode32[at] = 0 // a placeholder, another one each time
		}
	}
	return filter, err
}

// rules returns the rules of the sentry's filter with values for its variables.
//
//go:linkname rules gvisor.dev/gvisor/runsc/boot/filter/config.rules
func rules(config.Options, precompiledseccomp.Values) (allowed, denied seccomp.SyscallRules)

// killOwnThread is a rule of systrap, which states the process id of this process instead of the
// variable for it.
func killOwnThread(values precompiledseccomp.Values) seccomp.SyscallRule {
	return seccomp.PerArg{seccomp.EqualTo(values.GetUint64("self_pid")), seccomp.AnyValue{},
		seccomp.EqualTo(unix.SIGKILL)}
}
