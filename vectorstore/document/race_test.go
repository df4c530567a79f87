//go:build race

package document

func init() { raceDetector = true }
