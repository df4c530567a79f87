// Package engine is a test.
package engine

import (
	_ "net/http"

	_ "github.com/berth-run/berth/api"
	"github.com/berth-run/berth/store"
)

const kind store.Kind = "secret"
