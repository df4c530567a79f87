//go:build !race

package markdown

// childMemory is the number of bytes that a child may use.
const childMemory = 768 << 20
