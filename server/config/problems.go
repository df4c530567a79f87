package config

import (
	"errors"
	"fmt"
	"slices"
)

// maxProblems bounds the reported errors of a configuration.
const maxProblems = 20

// IsFlagError reports whether an error of Load is in the value of a flag.
func IsFlagError(err error) bool {
	return slices.ContainsFunc(Flatten(err), func(err error) bool {
		p, ok := errors.AsType[*placedError](err)
		return ok && p.flag
	})
}

// Problems returns all errors of a configuration as one, in the order of their lines: those of values
// that could not be read, and those of the values themselves. It leaves out those that may follow from
// a value that could not be read, because it is in the same section.
func (c *Config) Problems(unreadable []error, invalid error) error {
	sections := map[string]bool{}
	var found []error
	for _, err := range unreadable {
		sections[sectionOf(err)] = true
		found = append(found, c.In(err))
	}
	for _, err := range Flatten(invalid) {
		if !sections[sectionOf(err)] {
			found = append(found, c.In(err))
		}
	}
	slices.SortStableFunc(found, func(a, b error) int { return lineOf(a) - lineOf(b) })
	if len(found) > maxProblems {
		found = append(found[:maxProblems], fmt.Errorf("and %d more", len(found)-maxProblems))
	}
	return errors.Join(found...)
}

// Flatten returns the errors that errors.Join has joined.
func Flatten(err error) (all []error) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		all = append(all, Flatten(e)...)
	}
	return all
}
