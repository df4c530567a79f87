//go:build !race

package javascript

// maxMemory is the number of bytes that a child may use.
const maxMemory = 256 << 20
