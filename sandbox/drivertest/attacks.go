package drivertest

import "testing"

func (s *suite) attacks(t *testing.T) {}
