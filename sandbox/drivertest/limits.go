package drivertest

import "testing"

func (s *suite) limits(t *testing.T) {}
