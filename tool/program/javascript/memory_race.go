//go:build race

package javascript

// maxMemory has room for the shadow memory of the race detector.
const maxMemory = 1 << 30
