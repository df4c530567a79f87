//go:build race

package markdown

// childMemory has room for the shadow memory of the race detector.
const childMemory = 1536 << 20
