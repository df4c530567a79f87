//go:build !amd64

package prebuilt

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

var filter *precompiledseccomp.Program // gVisor computes it
