package sandbox

import (
	"fmt"
	"time"
)

// createdSlack is how far the clock that dates what a sandbox writes may be behind the
// one that its Create has seen.
const createdSlack = 10 * time.Second

// CreatedEnv returns an entry of the guest's environment, to stand before those of a
// Spec: a moment before the sandbox's Create wrote anything above its template. If its
// root is an overlay, a directory that was last changed before then is the template's
// alone, with all that is below it.
func CreatedEnv() string {
	return fmt.Sprintf("BERTH_CREATED=%d", time.Now().Add(-createdSlack).Unix())
}
