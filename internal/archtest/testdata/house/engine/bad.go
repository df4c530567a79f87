// Package engine is a test.
package engine

import (
	_ "net/http"

	_ "github.com/berth-run/berth/api"
	_ "github.com/berth-run/berth/store"
)
