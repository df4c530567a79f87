// Package engine is a test.
package engine

import (
	"context"
	_ "net/http"
	"time"

	_ "github.com/berth-run/berth/api"
	"github.com/berth-run/berth/store"
)

const kind store.Kind = "secret"

var began, bounded = time.Now(), context.WithTimeout
