package sandbox

import (
	"fmt"
	"time"
)

// createdSlack bounds how far the clock of a sandbox's files may be behind the server's at
// Create.
const createdSlack = 10 * time.Second

// CreatedEnv returns an entry of the guest's environment with a time before the sandbox's
// Create wrote anything above its template. It belongs before the Spec's entries. If the
// sandbox's root is an overlay, a directory that was last changed before that time is unchanged
// from the template, with all files below it.
func CreatedEnv() string {
	return fmt.Sprintf("BERTH_CREATED=%d", time.Now().Add(-createdSlack).Unix())
}
