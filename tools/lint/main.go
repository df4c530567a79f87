// Lint checks that exported names have doc comments, that errors name the failed operation when they
// leave a package, and that log messages are constants. scripts/check runs it.
package main

import (
	"go-simpler.org/sloglint"
	"golang.org/x/tools/go/analysis/multichecker"
)

func main() {
	multichecker.Main(docs, wrap, sloglint.New(&sloglint.Options{StaticMessage: true}))
}
