// Package house is a test.
package house

import _ "example.com/else"
